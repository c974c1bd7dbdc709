// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/unwind"
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

// readEvents books events until ctx ends or nothing is left to trace, and then those still in the
// ring.
func (t *Tracer) readEvents(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = t.events.Flush() })()
	var record ringbuf.Record
	lastEvent := time.Now()
	for {
		done := ctx.Err() != nil || t.finished()
		began := time.Now()
		interval := pollInterval
		if t.asleep = began.Sub(lastEvent) > idleAfter && t.sleep() == nil; t.asleep {
			interval = t.idle
		}
		t.events.SetDeadline(began.Add(interval))
		if t.drain(&record) > 0 {
			lastEvent = began
		}
		for n := 0; done && n < 4 && t.events.AvailableBytes() > 0; n++ {
			t.drain(&record) // all that a full ring can hold
		}
		changed, err := t.mapping.Hotplug()
		if err != nil {
			t.warn("processes that begin may be noticed late: " + err.Error())
		}
		if t.mapping.Poll(t.mapped) || changed {
			t.jobs.add(job{kind: jobScan})
		}
		if done {
			return
		}
	}
}

// sleep has the next event wake the reader.
func (t *Tracer) sleep() error {
	return t.coll.Maps["reader_sleeps"].Put(uint32(0), uint32(1))
}

// drain books events until the ring is empty, but at most 65,536, so that other duties do not wait.
func (t *Tracer) drain(record *ringbuf.Record) (n int) {
	for ; n < 1<<16; n++ {
		err := t.events.ReadInto(record)
		if bpf.IsRingEmpty(err) {
			empty := clock.Now()
			// A closed ring has no bytes to ask for; else no event came before the time was taken.
			if !errors.Is(err, ringbuf.ErrClosed) && t.events.AvailableBytes() == 0 {
				t.sequencer.RingWasEmpty(empty)
				t.reaper.RingWasEmpty()
			}
			return n
		}
		if t.asleep {
			t.asleep = false
			t.events.SetDeadline(time.Now().Add(pollInterval)) // the next ones wake nobody
		}
		if err == nil {
			var e *bpf.Event
			if e, err = bpf.DecodeEvent(record.RawSample); err == nil {
				t.take(e, bpf.DecodeDetails(record.RawSample))
			}
			if t.tap != nil {
				t.tap(record.RawSample)
			}
		}
		if err != nil {
			t.counts.lost.Add(1)
		}
	}
	return n
}

// take books an event. A panic costs no more than the event.
func (t *Tracer) take(e *bpf.Event, details *bpf.Details) {
	tx := t.sequencer.Begin()
	defer tx.Done()
	defer func() {
		if r := recover(); r != nil {
			t.counts.lost.Add(1)
			t.defects.Note("an event", r)
		}
	}()
	tx.Passed(e.Time)
	t.handle(tx, e, details)
}

// handle books one event.
func (t *Tracer) handle(tx *sequence.Tx, e *bpf.Event, details *bpf.Details) {
	switch e.Kind {
	case bpf.KindHeld:
		t.jobs.add(job{kind: jobHeld, pid: e.Pid})
		return
	case bpf.KindTables:
		if t.table.Find(tx, e.Pid) != nil {
			t.jobs.add(job{kind: jobLoad, pid: e.Pid})
		}
		return
	case bpf.KindExit:
		t.exited(tx, e)
		return
	case bpf.KindExec:
		t.executed(tx, e)
		return
	}
	p := t.table.Find(tx, e.Pid)
	if p == nil {
		t.ignore(e)
		return
	}
	if e.Flags&bpf.FlagNoTables != 0 && p.HasNoTables() {
		t.counts.noRoomForTables.Add(1)
	}
	switch e.Kind {
	case bpf.KindAllocator, bpf.KindBlock, bpf.KindBlockFree, bpf.KindBlockFailed, bpf.KindTotals:
		t.handleBlock(tx, p, e)
	case bpf.KindInit:
		t.jobs.add(job{kind: jobScan, pid: e.Pid})
	default:
		t.handleCall(tx, p, e, details)
	}
}

// handleBlock books an event of PyTorch's allocator.
func (t *Tracer) handleBlock(tx *sequence.Tx, p *processes.Process, e *bpf.Event) {
	device, ok := t.tensors.Handle(tx, e)
	if ok && e.Kind == bpf.KindBlockFailed {
		t.ooms.Add(tx, oom.Error{
			PID: e.Pid, User: p.User(), Time: e.Time, Stack: e.Stack, API: "torch", Kind: ledger.Tensor, Device: device, Size: e.Size, Allocated: e.Context, Reserved: e.Extra,
		})
	}
}

// handleCall books a call of CUDA.
func (t *Tracer) handleCall(tx *sequence.Tx, p *processes.Process, e *bpf.Event, details *bpf.Details) {
	p.Changes(e.Time)
	event := &t.event
	var ok bool
	if *event, ok = cudaapi.Translate(e, details); !ok {
		t.counts.lost.Add(1)
		return
	}
	if event.Op == 0 {
		return
	}
	if e.Kind == bpf.KindAlloc {
		t.tensors.Disinherit(tx, e.Pid)
	}
	if doubt := cudaapi.Doubt(e, event); doubt != "" && p.Doubt() {
		tx.Tell(ledger.Warning{PID: e.Pid, Text: doubt})
	}
	tx.Apply(event)
	t.wantDevice(event)
	if event.Op == ledger.AllocFailed && event.Result == bpf.OutOfMemory {
		t.ooms.Add(tx, oom.Error{PID: e.Pid, User: p.User(), Time: e.Time, Stack: e.Stack, API: event.API, Kind: event.Kind, Device: event.Device, Size: event.Size})
	}
	if event.Op == ledger.Alloc {
		first, firstThere := p.Allocates(event.Device)
		if first {
			t.jobs.add(job{jobIntroduce, e.Pid})
		}
		if first || firstThere {
			t.usage.Soon()
		}
	}
}

// exited books the end of a process: what each type knows of it first.
func (t *Tracer) exited(tx *sequence.Tx, e *bpf.Event) {
	t.table.Release(e.Pid)
	t.shares.Leave(e.Pid)
	if t.tensors.Leave(tx, e.Pid) {
		t.jobs.add(job{kind: jobBlocks})
	}
	t.usage.Forget(e.Pid)
	t.stacks.Ended(e.Pid)
	t.table.Exit(tx, e)
	t.jobs.add(job{kind: jobForget, pid: e.Pid})
}

// executed books that a process runs another program now.
func (t *Tracer) executed(tx *sequence.Tx, e *bpf.Event) {
	if t.table.IsKnown(e.Pid) {
		t.stacks.Ended(e.Pid)
		if t.tensors.Leave(tx, e.Pid) {
			t.jobs.add(job{kind: jobBlocks})
		}
		t.usage.Forget(e.Pid)
		t.shares.Leave(e.Pid)
	}
	t.table.Exec(tx, e)
}

// ignore takes an event of a process that is not traced out of the kernel's counts of stacks: with
// --name the kernel half sends some until the name of the process was looked at.
func (t *Tracer) ignore(e *bpf.Event) {
	switch e.Kind {
	case bpf.KindAllocator:
		t.tensors.Drop(e)
	case bpf.KindAlloc, bpf.KindFree:
		t.table.CountNameless(e.Pid)
	}
	switch e.Kind {
	case bpf.KindAlloc, bpf.KindAllocFailed, bpf.KindBlock, bpf.KindBlockFailed:
	case bpf.KindCall:
		if f := cudaapi.ByID(e.Function); f == nil || !f.Stack || f.IsObject() {
			return
		}
	default:
		return
	}
	t.counts.ignoredStacks.Add(1)
	switch {
	case e.Flags&bpf.FlagNoTables != 0:
		t.counts.ignoredNoStack.Add(1)
	case e.Flags&bpf.FlagTruncated != 0:
		t.counts.ignoredTruncated.Add(1)
	}
}

// counts is what the tracer itself could not book. The goroutine that reads the events ring counts.
type counts struct {
	lost             atomic.Uint64 // events that could not be decoded or booked
	ignoredStacks    atomic.Uint64 // stacks of processes that are not traced
	ignoredNoStack   atomic.Uint64 // their events without a stack
	ignoredTruncated atomic.Uint64 // their stacks that were not walked to the end
	noRoomForTables  atomic.Uint64 // events without a stack of processes whose unwind tables found no room
}

// stats returns what the kernel half and the tracer could not do.
func (t *Tracer) stats() ledger.Stats {
	var counters [bpf.CounterCount]uint64
	for i := range counters {
		_ = t.coll.Maps["counters"].Lookup(uint32(i), &counters[i])
	}
	s := ledger.Stats{
		LostFor:   t.lostFor(),
		Stacks:    counters[bpf.CounterStacks] - min(t.counts.ignoredStacks.Load(), counters[bpf.CounterStacks]),
		StacksBy:  t.stacks.Lost(),
		Torn:      counters[bpf.CounterTorn],
		Truncated: map[string]uint64{},
	}
	for _, n := range s.LostFor {
		s.Lost += n
	}
	s.Missing = t.missing(&counters)
	for _, n := range s.Missing {
		s.NoStack += n
	}
	s.LostBy, _ = t.shares.Lost()
	var code uint32
	var count uint64
	for i := t.coll.Maps["truncated_stacks"].Iterate(); i.Next(&code, &count); {
		if count > 0 {
			s.Truncated[unwind.Reason(code)] += count
		}
	}
	// An event does not carry the reason. Nearly all walks of ignored processes end for this one,
	// because vramprof has loaded no tables for them.
	if n, ignored := s.Truncated[unwind.NoTables], t.counts.ignoredTruncated.Load(); n > ignored {
		s.Truncated[unwind.NoTables] = n - ignored
	} else {
		delete(s.Truncated, unwind.NoTables)
	}
	return s
}

// lossReasons are the reasons for which the kernel half loses events, by its counters.
var lossReasons = map[uint32]string{
	bpf.CounterEventLost:    ledger.LostBuffersFull,
	bpf.CounterEventRefused: ledger.LostShareUsed,
	bpf.CounterTableFull:    ledger.LostTablesFull,
	bpf.CounterNoMemory:     ledger.LostNoMemory,
	bpf.CounterTooDeep:      ledger.LostTooNested,
	bpf.CounterUnreadable:   ledger.LostUnreadable,
}

// lostFor counts the events that are not booked, by reason.
func (t *Tracer) lostFor() map[string]uint64 {
	list := map[string]uint64{}
	add := func(reason string, n uint64) {
		if n > 0 {
			list[reason] = n
		}
	}
	for i, reason := range lossReasons {
		var n uint64
		_ = t.coll.Maps["counters"].Lookup(i, &n)
		add(reason, n)
	}
	add(ledger.LostUndecodable, t.counts.lost.Load())
	add(ledger.LostSkipped, t.skipped())
	return list
}

// skipped counts runs of the probes' programs that the kernel left out: before Linux 5.19, while
// another BPF program, or a system call on a BPF map, is interrupted on that CPU.
func (t *Tracer) skipped() (sum uint64) {
	for _, p := range t.coll.Programs {
		if p.Type() != ebpf.Kprobe {
			continue
		}
		if stats, err := p.Stats(); err == nil {
			sum += stats.RecursionMisses // 0 before Linux 5.12
		}
	}
	return sum
}

// missing counts the events without a stack by reason.
func (t *Tracer) missing(counters *[bpf.CounterCount]uint64) map[string]uint64 {
	noTables := counters[bpf.CounterNoTables] - min(t.counts.ignoredNoStack.Load(), counters[bpf.CounterNoTables])
	noRoom := min(t.counts.noRoomForTables.Load(), noTables)
	list := map[string]uint64{
		"as unwind tables were not loaded yet":        noTables - noRoom,
		"as there was no room for unwind tables":      noRoom,
		"as there was no room in the ring of stacks":  counters[bpf.CounterStackLost],
		"as they could not be read":                   t.reader.Lost(),
		"as the unwinder's programs were not entered": counters[bpf.CounterChainBroken],
	}
	maps.DeleteFunc(list, func(_ string, n uint64) bool { return n == 0 })
	return list
}
