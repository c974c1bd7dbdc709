// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Handle books an event of an allocator of a traced process, and the details that follow it, if
// any. It returns the allocator's device, and false if that is neither a GPU nor the host: then
// nothing is booked.
func (a *Allocators) Handle(b ledger.Books, e *bpf.Event, details *bpf.Details) (device int32, ok bool) {
	device, ok = tensorDevice(int(e.Result), int(e.Device))
	if !ok {
		return 0, false
	}
	event := &a.event
	*event = ledger.Event{
		Kind: ledger.Tensor, Space: ledger.Blocks, PID: e.Pid, TID: e.Tid, Device: device, Time: e.Time,
		Address: e.Address, Size: e.Size, Stack: e.Stack, API: "torch",
	}
	if e.Flags&bpf.FlagTotals != 0 {
		event.Told, event.Allocated, event.Reserved = ledger.ToldAllocated, e.Context, e.Extra
	}
	if a.Details {
		a.details.describe(event, e, keyOf(e))
	}
	switch e.Kind {
	case bpf.KindBlockDetails:
		return device, true // the block's event follows
	case bpf.KindBlockCompleted:
		event.Op, event.Size, event.Detail = ledger.Completed, 0, ledger.DetailKnown
		for _, address := range details.Addresses(e) {
			event.Address = address
			b.Apply(event)
		}
		return device, true
	case bpf.KindAllocator:
		event.Op, event.Size, event.Handle = ledger.Allocator, e.Context, e.Extra
	case bpf.KindBlock:
		event.Op, event.Halvings = ledger.Alloc, e.Halvings()
	case bpf.KindBlockFree, bpf.KindBlockOlder, bpf.KindTotals:
		event.Op, event.Size = ledger.Free, 0
		if e.Kind != bpf.KindBlockFree {
			event.Op = ledger.Totals
		}
		if event.Told != 0 {
			event.Told, event.Live = event.Told|ledger.ToldLive, e.Size
		}
	case bpf.KindBlockFailed:
		event.Op, event.Size, event.Stack = ledger.Totals, 0, 0
	}
	if waiting := a.noteReport(e); !a.inherits(b, event, waiting) {
		b.Apply(event)
	}
	return device, true
}

// noteReport notes the allocator that sent an event, and returns how many first reports of its
// process wait.
func (a *Allocators) noteReport(e *bpf.Event) (waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.of(e.Pid)
	p.reports = true
	p.has(keyOf(e))
	if e.Kind == bpf.KindBlock {
		p.count.Stacks++
	}
	return len(p.inherited)
}

// A child that only forks shares what PyTorch's allocator of its parent had, and gives it back when
// its interpreter ends: a worker of a data loader reports frees, with all of its parent's totals.
// Such a child has no CUDA of its own, and so no allocator on a GPU. It has one from its first
// allocation on, if it ever makes one.

// maxInherited bounds the first reports that wait: a process has few GPUs.
const maxInherited = 16

// inherits reports whether an event of an allocator is of the allocator of the parent: it is as
// long as the process has no CUDA of its own, and has allocated nothing. A first report is kept
// until more is known.
func (a *Allocators) inherits(b ledger.Books, e *ledger.Event, waiting int) bool {
	switch {
	case e.Device < 0 || waiting == 0 && e.Op != ledger.Allocator:
		return false
	case e.Op == ledger.Alloc || a.hasCUDA(e.PID):
		a.Disinherit(b, e.PID)
		return false
	case e.Op == ledger.Allocator && waiting < maxInherited:
		a.mu.Lock()
		defer a.mu.Unlock()
		p := a.of(e.PID)
		p.inherited = append(p.inherited, *e)
	}
	return true
}

// Disinherit books the first reports of a process that turns out to use CUDA itself.
func (a *Allocators) Disinherit(b ledger.Books, pid uint32) {
	a.mu.Lock()
	p := a.processes[pid]
	var list []ledger.Event
	if p != nil {
		list, p.inherited = p.inherited, nil
	}
	a.mu.Unlock()
	for i := range list {
		b.Apply(&list[i])
	}
}

// hasCUDA reports whether a process uses CUDA itself.
func (a *Allocators) hasCUDA(pid uint32) bool {
	if uses, sure := a.UsesCUDA(pid); uses || sure {
		return uses
	}
	a.mu.Lock()
	p := a.of(pid)
	dated, older := p.dated, p.older
	a.mu.Unlock()
	if dated {
		return older
	}
	began := procfs.StartTime(pid)
	older = began != 0 && began < a.Begin()
	a.mu.Lock()
	defer a.mu.Unlock()
	p.dated, p.older = true, older
	return older
}

// isInherited reports whether an allocator is that of the parent, by what the kernel half has of
// it.
func (a *Allocators) isInherited(b ledger.Books, pid uint32, device int32, value *bpf.TensorDevice) bool {
	if device < 0 {
		return false
	}
	allocated := value.Unbooked > 0
	for i := range value.Classes {
		allocated = allocated || value.Classes[i].Allocs > 0
	}
	if !allocated && !a.hasCUDA(pid) {
		return true
	}
	a.Disinherit(b, pid)
	return false
}
