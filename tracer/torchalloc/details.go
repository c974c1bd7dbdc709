// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// BlockLayout is where a build of PyTorch has the fields of a Block, in bytes.
type BlockLayout = bpf.BlockLayout

// commonLayout is that of PyTorch 2.1 to 2.6 on 64-bit machines. Each block proves it anew: the
// kernel half takes nothing from a Block that has not the address and the size that were reported.
var commonLayout = BlockLayout{Ptr: 72, Size: 48, Requested: 56, Pool: 64, Stream: 8, Allocated: 80, Uses: 40, Events: 104, Owner: 104}

// WantDetails has the kernel half read, before its programs are loaded, what a replay needs of each
// block: see bpf/block_details.h. Without it, their maps take no memory.
func WantDetails(spec *ebpf.CollectionSpec, want bool) error {
	if !want {
		bpf.DropDetails(spec)
		return nil
	}
	if err := spec.Variables["wants_details"].Set(uint32(1)); err != nil {
		return fmt.Errorf("ask for details of tensors: %w", err)
	}
	return nil
}

// allProcesses is the key of the layout of processes without one of their own.
const allProcesses = uint32(0)

// details completes events of blocks with the event that the kernel half sends before each: no
// other block of the same process and device comes between.
type details struct {
	of map[bpf.TensorKey]bpf.Event // the latest KindBlockDetails
}

// maxDetails bounds the allocators whose details wait for their block: those of dead processes are
// never asked for.
const maxDetails = 4096

// describe sets the details of an event of an allocator.
func (d *details) describe(event *ledger.Event, e *bpf.Event, key bpf.TensorKey) {
	switch e.Kind {
	case bpf.KindBlockDetails:
		if d.of == nil || len(d.of) >= maxDetails {
			d.of = map[bpf.TensorKey]bpf.Event{}
		}
		d.of[key] = *e
	case bpf.KindBlock:
		x, ok := d.of[key]
		delete(d.of, key)
		if ok && x.Address == e.Address && x.Time <= e.Time && x.Size <= e.Size {
			event.Detail, event.Requested, event.Stream, event.Pool = ledger.DetailKnown, x.Size, x.Context, x.Extra
		}
	case bpf.KindBlockFree, bpf.KindBlockOlder:
		if e.Kind == bpf.KindBlockOlder {
			event.Detail = ledger.DetailOlder
		}
		if e.Flags&bpf.FlagNoDetails == 0 {
			event.Detail |= ledger.DetailKnown
		}
		if e.Flags&bpf.FlagWaits != 0 {
			event.Detail |= ledger.DetailWaits
		}
	case bpf.KindBlockFailed:
		event.Detail, event.Requested = ledger.DetailFailed, e.Size
	}
}
