// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestDetailsGoToTheirBlockAlone(t *testing.T) {
	key := bpf.TensorKey{Pid: 7, Device: 1}
	var d details
	describe := func(kind bpf.Kind, address, size uint64, flags uint8) (event ledger.Event) {
		d.describe(&event, &bpf.Event{Kind: kind, Time: 5, Address: address, Size: size, Context: 0x50, Extra: 0xabc0, Flags: flags}, key)
		return event
	}
	describe(bpf.KindBlockDetails, 0x1000, 700, 0)
	if e := describe(bpf.KindBlock, 0x1000, 1024, 0); e.Detail != ledger.DetailKnown || e.Requested != 700 || e.Stream != 0x50 || e.Pool != 0xabc0 {
		t.Errorf("%+v", e)
	}
	if e := describe(bpf.KindBlock, 0x1000, 1024, 0); e.Detail != 0 {
		t.Errorf("details were used twice: %+v", e)
	}
	describe(bpf.KindBlockDetails, 0x1000, 700, 0)
	if e := describe(bpf.KindBlock, 0x2000, 1024, 0); e.Detail != 0 {
		t.Errorf("details of another block: %+v", e)
	}
	for flags, want := range map[uint8]ledger.Detail{
		0: ledger.DetailKnown, bpf.FlagWaits: ledger.DetailKnown | ledger.DetailWaits, bpf.FlagNoDetails: 0, bpf.FlagNoDetails | bpf.FlagWaits: ledger.DetailWaits,
	} {
		if e := describe(bpf.KindBlockFree, 0x1000, 0, flags); e.Detail != want {
			t.Errorf("flags %d: %+v", flags, e)
		}
		if e := describe(bpf.KindBlockOlder, 0x1000, 0, flags); e.Detail != want|ledger.DetailOlder {
			t.Errorf("flags %d: %+v", flags, e)
		}
	}
}
