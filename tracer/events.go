// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/allocscan"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/oom/oomevent"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// pollInterval is how long events lie in the ring before they are read. They wake nobody: a wake-up
// costs the traced thread more than unwinding. The ring of 16 MiB holds 260,000 events. Only after
// idleAfter without any event does the reader sleep longer, and the next event wakes it.
const (
	pollInterval = 10 * time.Millisecond
	idleInterval = time.Second
	idleAfter    = time.Second
	mappingPause = 5 * time.Millisecond // new programs wake the reader at most so often
)

// eventReader reads the events ring: it decodes each event, and books it in one transaction. Its
// file has the way of an event from top to bottom: drain decodes it, book begins the transaction,
// in which dispatch finds the process, and bookCall or bookBlock has the sequencer pass it to the
// capture and to ledger.Ledger.Apply. What can take long is a job for others. Only the goroutine of
// Run reads.
type eventReader struct {
	ring   *ringbuf.Reader
	sleeps *ebpf.Map // of the kernel half: whether the next event wakes the reader

	sequencer *sequence.Sequencer
	defects   *panics.List
	table     *processes.Table
	reaper    *processes.Reaper
	tensors   *torchalloc.Allocators
	usage     *gpuusage.Monitor
	shares    *shares.Shares
	stacks    *stacks.Store
	makers    stacks.Makers
	ooms      *oom.Queue
	scanner   *allocscan.Scanner // nil: settings of PyTorch are not wanted
	discovery *discovery
	jobs      *jobs
	losses    *losses
	finished  func() bool // nothing is left to trace

	event  ledger.Event     // the latest: one for each would be garbage
	asleep bool             // the next event wakes the reader
	idle   time.Duration    // idleInterval, longer in a test
	tap    func(raw []byte) // sees every event; for test data
}

// run books events until ctx ends or nothing is left to trace, and then those still in the
// ring.
func (r *eventReader) run(ctx context.Context) {
	defer context.AfterFunc(ctx, r.flush)()
	var record ringbuf.Record
	lastEvent := time.Now()
	for {
		done := ctx.Err() != nil || r.finished()
		began := time.Now()
		interval := pollInterval
		if r.asleep = began.Sub(lastEvent) > idleAfter && r.sleep() == nil; r.asleep {
			interval = r.idle
		}
		r.ring.SetDeadline(began.Add(interval))
		if r.drain(&record) > 0 {
			lastEvent = began
		}
		for n := 0; done && n < 4 && r.ring.AvailableBytes() > 0; n++ {
			r.drain(&record) // all that a full ring can hold
		}
		r.discovery.poll()
		if done {
			return
		}
	}
}

// bookFirst books the events in the ring before Ready is called, so that idle processes have
// their baselines by then.
func (r *eventReader) bookFirst() {
	var record ringbuf.Record
	r.ring.SetDeadline(time.Now())
	r.drain(&record)
	tx := r.sequencer.Begin()
	defer tx.Done()
	tx.TakeAll()
}

// sleep has the next event wake the reader.
func (r *eventReader) sleep() error {
	return r.sleeps.Put(uint32(0), uint32(1))
}

// drain books events until the ring is empty, but at most 65,536, so that other duties do not wait.
func (r *eventReader) drain(record *ringbuf.Record) (n int) {
	for ; n < 1<<16; n++ {
		err := r.ring.ReadInto(record)
		if bpf.IsRingEmpty(err) {
			empty := clock.Now()
			// A closed ring has no bytes to ask for; else no event came before the time was taken.
			if !errors.Is(err, ringbuf.ErrClosed) && r.ring.AvailableBytes() == 0 {
				r.sequencer.RingWasEmpty(empty)
				r.reaper.RingWasEmpty()
			}
			return n
		}
		if r.asleep {
			r.asleep = false
			r.ring.SetDeadline(time.Now().Add(pollInterval)) // the next ones wake nobody
		}
		if err == nil {
			var e *bpf.Event
			if e, err = bpf.DecodeEvent(record.RawSample); err == nil {
				r.book(e, bpf.DecodeDetails(record.RawSample))
			}
			if r.tap != nil {
				r.tap(record.RawSample)
			}
		}
		if err != nil {
			r.losses.undecodable.Add(1)
		}
	}
	return n
}

// book books an event. A panic costs no more than the event.
func (r *eventReader) book(e *bpf.Event, details *bpf.Details) {
	tx := r.sequencer.Begin()
	defer tx.Done()
	defer func() {
		if fault := recover(); fault != nil {
			r.losses.undecodable.Add(1)
			r.defects.Note("an event", fault)
		}
	}()
	tx.Passed(e.Time)
	r.dispatch(tx, e, details)
}

// dispatch books an event by its kind.
func (r *eventReader) dispatch(tx *sequence.Tx, e *bpf.Event, details *bpf.Details) {
	switch e.Kind {
	case bpf.KindHeld:
		r.jobs.add(job{kind: jobHeld, pid: e.Pid})
		return
	case bpf.KindTables:
		if r.table.Find(tx, e.Pid) != nil {
			r.jobs.add(job{kind: jobLoad, pid: e.Pid})
		}
		return
	case bpf.KindExit:
		r.exit(tx, e)
		return
	case bpf.KindExec:
		r.exec(tx, e)
		return
	}
	p := r.table.Find(tx, e.Pid)
	if p == nil {
		r.ignore(e)
		return
	}
	if e.Flags&bpf.FlagNoTables != 0 && p.HasNoTables() {
		r.losses.noRoomForTables.Add(1)
	}
	switch e.Kind {
	case bpf.KindAllocator, bpf.KindBlock, bpf.KindBlockFree, bpf.KindBlockFailed, bpf.KindTotals, bpf.KindBlockDetails, bpf.KindBlockCompleted, bpf.KindBlockOlder:
		r.bookBlock(tx, p, e, details)
	case bpf.KindInit:
		r.jobs.add(job{kind: jobScan, pid: e.Pid})
	default:
		r.bookCall(tx, p, e, details)
	}
}

// bookBlock books an event of PyTorch's allocator.
func (r *eventReader) bookBlock(tx *sequence.Tx, p *processes.Process, e *bpf.Event, details *bpf.Details) {
	device, ok := r.tensors.Handle(tx, e, details)
	if ok && e.Kind == bpf.KindAllocator && device >= 0 && r.scanner != nil {
		r.jobs.add(job{jobPyTorch, e.Pid})
	}
	if ok && e.Kind == bpf.KindBlockFailed {
		r.ooms.Add(tx, oom.Error{User: p.User(), Event: oomevent.Event{
			PID: e.Pid, Time: e.Time, Stack: e.Stack, API: "torch", Kind: ledger.Tensor, Device: device, Size: e.Size, Allocated: e.Context, Reserved: e.Extra,
		}})
	}
}

// bookCall books a call of CUDA.
func (r *eventReader) bookCall(tx *sequence.Tx, p *processes.Process, e *bpf.Event, details *bpf.Details) {
	p.Changes(e.Time)
	if e.Function == cudaapi.MakesThread {
		r.makers.Add(r.stacks, e.Pid, p.User(), e.Tid, uint32(e.Address), e.Stack)
		return
	}
	event := &r.event
	var ok bool
	if *event, ok = cudaapi.Translate(e, details); !ok {
		r.losses.undecodable.Add(1)
		return
	}
	if event.Op == 0 {
		return
	}
	if event.Stack != 0 {
		event.Stack = r.stacks.Join(e.Pid, p.User(), event.Stack, r.makers.Of(e.Pid, e.Tid))
	}
	if e.Kind == bpf.KindAlloc {
		r.tensors.Disinherit(tx, e.Pid)
	}
	if doubt := cudaapi.Doubt(e, event); doubt != "" && p.Doubt() {
		tx.Tell(ledger.Warning{PID: e.Pid, Text: doubt})
	}
	tx.Apply(event)
	r.discovery.wantDevice(event)
	if event.Op == ledger.AllocFailed && event.Result == bpf.OutOfMemory {
		r.ooms.Add(tx, oom.Error{User: p.User(), Event: oomevent.Event{
			PID: e.Pid, Time: e.Time, Stack: event.Stack, API: event.API, Kind: event.Kind, Device: event.Device, Size: event.Size,
		}})
	}
	if event.Op == ledger.Alloc {
		first, firstThere := p.Allocates(event.Device)
		if first {
			r.jobs.add(job{jobIntroduce, e.Pid})
		}
		if first || firstThere {
			r.usage.Soon()
		}
	}
}

// exit books the end of a process: what each type knows of it first.
func (r *eventReader) exit(tx *sequence.Tx, e *bpf.Event) {
	r.table.Release(e.Pid)
	r.shares.Leave(e.Pid)
	if r.tensors.Leave(tx, e.Pid) {
		r.jobs.add(job{kind: jobBlocks})
	}
	r.usage.Forget(e.Pid)
	r.stacks.Ended(e.Pid)
	r.makers.Ended(e.Pid)
	r.table.Exit(tx, e)
	r.jobs.add(job{kind: jobForget, pid: e.Pid})
}

// exec books that a process runs another program now.
func (r *eventReader) exec(tx *sequence.Tx, e *bpf.Event) {
	if r.table.IsKnown(e.Pid) {
		r.stacks.Ended(e.Pid)
		r.makers.Ended(e.Pid)
		if r.tensors.Leave(tx, e.Pid) {
			r.jobs.add(job{kind: jobBlocks})
		}
		r.usage.Forget(e.Pid)
		r.shares.Leave(e.Pid)
	}
	r.table.Exec(tx, e)
}

// ignore leaves out an event of a process that is not traced: with --name the kernel half sends
// some until the name of the process was looked at.
func (r *eventReader) ignore(e *bpf.Event) {
	switch e.Kind {
	case bpf.KindAllocator:
		r.tensors.Drop(e)
	case bpf.KindAlloc, bpf.KindFree:
		r.table.CountNameless(e.Pid)
	}
	r.losses.ignore(e)
}

// flush wakes the goroutine that reads the ring, which sleeps when there is nothing to read.
func (r *eventReader) flush() { _ = r.ring.Flush() }
