// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/allocator"
)

// AllocatorState is what TorchState writes: PyTorch's allocator as it was read from outside.
type AllocatorState struct {
	*allocator.Snapshot
	Keepers  map[uint64]Keeper // who keeps the block at an address; nil: not looked for
	Made     map[uint64]uint64 // stack of the allocation of the block at an address, as far as a session knows it
	Stacks   callstack.Stacks  // of Made
	Settings string            // value of PYTORCH_CUDA_ALLOC_CONF
	Known    bool              // Settings is known; it may be ""
	PID      uint32
	Comm     string // untrusted
	Host     string
	Warnings []string
}

// Keeper is the holder of a block. Its texts are untrusted.
type Keeper struct {
	Path  string   // "model.layers.3.fc1.weight"
	Steps []string // the path in pieces, root first
}

// markNoHolder is the frame of a block that no holder was found for.
const markNoHolder = "[no holder known]"

// TorchState writes the state of PyTorch's allocator as torch.cuda.memory._dump_snapshot does.
// Streams, pools, sizes and states are the allocator's. Frames of an active block are its stack
// trace, where Made has it. Else they are the path of its holder, leaf first, or "[no holder
// known]"; without Keepers there are none. Traces are empty.
func TorchState(w io.Writer, s *AllocatorState) error {
	t := &torchState{AllocatorState: s, frameLists: newFrameLists(pickle.NewWriter(w))}
	t.write()
	if err := t.p.Close(); err != nil {
		return fmt.Errorf("write torch snapshot: %w", err)
	}
	return nil
}

type torchState struct {
	*AllocatorState
	frameLists
}

func (t *torchState) write() {
	p := t.p
	p.Dict()
	p.String("segments")
	t.segments()
	p.String("device_traces")
	l := p.List()
	for range t.Devices {
		l.Item()
		p.List()
	}
	l.End()
	if t.Known {
		p.String("allocator_settings")
		p.Dict()
		p.StringItem("PYTORCH_CUDA_ALLOC_CONF", untrusted.Clean(t.Settings))
		p.EndDict()
	}
	p.String("vramprof")
	t.about()
	p.EndDict()
}

// about writes what the format has no fields for, for people; viewers ignore it.
func (t *torchState) about() {
	p := t.p
	p.Dict()
	p.StringItem("host", untrusted.Clean(t.Host))
	p.UintItem("pid", uint64(t.PID))
	p.StringItem("comm", untrusted.Clean(t.Comm))
	p.String("exact")
	p.Bool(t.Exact())
	writeWarnings(p, t.Warnings)
	p.EndDict()
}

// segments writes the segments with their blocks. Blocks that a torn walk found in no segment are
// left out. Only the native allocator has segments: each block of another one is written as its
// own.
func (t *torchState) segments() {
	if t.Backend != allocator.Native {
		l := t.p.List()
		for i := range t.Blocks {
			b := &t.Blocks[i]
			l.Item()
			t.segment(&allocator.Segment{Address: b.Address, Size: b.Size, Stream: b.Stream, Device: b.Device, Small: b.Size <= segmentGrain}, []*allocator.Block{b})
		}
		l.End()
		return
	}
	blocks := make([][]*allocator.Block, len(t.Segments))
	for i := range t.Blocks { // by address
		if b := &t.Blocks[i]; b.Segment >= 0 && b.Segment < len(blocks) && b.State != allocator.Unmapped {
			blocks[b.Segment] = append(blocks[b.Segment], b)
		}
	}
	order := make([]int, len(t.Segments)) // as PyTorch has them
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int {
		a, b := &t.Segments[i], &t.Segments[k]
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Address, b.Address))
	})
	l := t.p.List()
	for _, i := range order {
		l.Item()
		t.segment(&t.Segments[i], blocks[i])
	}
	l.End()
}

func (t *torchState) segment(g *allocator.Segment, blocks []*allocator.Block) {
	s := segmentEntry{
		device: uint64(g.Device), address: g.Address, total: g.Size, stream: g.Stream, pool: g.Pool,
		small: g.Small, expandable: g.Base != 0,
	}
	for _, b := range blocks {
		switch b.State {
		case allocator.Active:
			s.allocated += b.Size
			fallthrough
		case allocator.PendingFree:
			s.active += b.Size
			s.requested += b.Requested
		}
	}
	s.write(t.p, func() { t.p.List() }, func() {
		l := t.p.List()
		for _, b := range blocks {
			l.Item()
			e := blockEntry{address: b.Address, size: b.Size, requested: b.Requested, state: b.State.String()}
			if b.State == allocator.Active {
				e.holder = untrusted.Clean(t.Keepers[b.Address].Path)
			}
			e.write(t.p, func() { t.frames(b) })
		}
		l.End()
	})
}

// frames writes the stack of a block, or the path of its holder as its stack.
func (t *torchState) frames(b *allocator.Block) {
	k, known := t.Keepers[b.Address]
	stack, made := t.Made[b.Address]
	switch {
	case made && b.State == allocator.Active:
		t.list(siteKey{stack: stack}, func() []callstack.Frame { return frames.Visible(t.Stacks, stack, "") })
	case t.Keepers == nil || b.State != allocator.Active:
		t.p.List()
	case !known:
		t.mark(markNoHolder)
	default:
		t.path(k.Path, k.Steps, "")
	}
}
