// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestDetailsOfBlocksComeBack: events with and without details, in one frame, and a frame without
// any has no columns of them.
func TestDetailsOfBlocksComeBack(t *testing.T) {
	plain := ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, TID: 8, Time: 5, Address: 0x1000, Size: 512, API: "cudaMalloc"}
	of := func(op ledger.Op, d ledger.Detail, size, requested, stream, pool uint64) ledger.Event {
		return ledger.Event{
			Op: op, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, TID: 8, Time: 6, Address: 0x2000, Size: size, API: "torch",
			Detail: d, Requested: requested, Stream: stream, Pool: pool,
		}
	}
	for _, list := range [][]ledger.Event{
		{plain},
		{
			plain,
			of(ledger.Alloc, ledger.DetailKnown, 1024, 700, 0x50, 0xabc0),
			of(ledger.Free, ledger.DetailKnown|ledger.DetailWaits, 0, 0, 0, 0),
			of(ledger.Completed, ledger.DetailKnown, 0, 0, 0, 0),
			of(ledger.Totals, ledger.DetailOlder, 0, 0, 0, 0),
			of(ledger.Totals, ledger.DetailFailed, 0, 1<<42, 0, 0),
			plain,
		},
	} {
		var m wire.Inputs
		c := newEventCoder()
		c.reset()
		for i := range list {
			c.add(&m, &list[i])
		}
		if has := len(m.CallDetail)+len(m.Requested) > 0; has != (len(list) > 1) {
			t.Errorf("%d events: columns of details %v", len(list), has)
		}
		var d eventDecoder
		if err := d.begin(&m); err != nil {
			t.Fatal(err)
		}
		for i := range list {
			var e ledger.Event
			if err := d.read(&e); err != nil || e != list[i] {
				t.Errorf("event %d: %v\n%+v, want\n%+v", i, err, e, list[i])
			}
		}
	}
}

func TestDamagedDetailsAreRefused(t *testing.T) {
	m := wire.Inputs{
		Api: [][]byte{{}}, CallOp: []uint32{1}, CallKind: []uint32{1}, CallSpace: []uint32{0}, CallPid: []uint32{7}, CallTid: []uint32{7}, CallDevice: []int32{0},
		CallResult: []int32{0}, CallContext: []uint64{0}, CallApi: []uint32{0}, CallDetail: []uint32{1}, CallStream: []uint64{1},
	}
	var d eventDecoder
	if err := d.begin(&m); err == nil {
		t.Error("a column of pools is missing")
	}
	m.CallPool, m.StackId, m.Events = []uint64{0}, []uint64{0}, 1
	m.Call, m.Time, m.Known, m.Address, m.Size, m.Stack = []byte{0}, []byte{0}, []byte{0}, []byte{2}, []byte{0}, []byte{0}
	if err := d.begin(&m); err != nil {
		t.Fatal(err)
	}
	var e ledger.Event
	if err := d.read(&e); err == nil {
		t.Error("the requested size is missing")
	}
}

func TestWhatIsKnownOfPyTorchComesBack(t *testing.T) {
	in := ledger.PyTorch{PID: 7, Time: 9, Version: "2.6.0", Settings: "max_split_size_mb:32", InUse: true}
	if got := pytorchOf(pytorchInput(&in).GetPytorch()); got != in {
		t.Errorf("%+v", got)
	}
}
