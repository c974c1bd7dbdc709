// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"maps"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// pollInterval is how long events lie in the ring before they are read. They wake nobody: a wake-up costs
// the traced thread more than the unwinding. The ring of 16 MiB holds 260,000 events. Only after
// idleAfter without any we sleep longer, and the next event wakes us.
const (
	pollInterval = 10 * time.Millisecond
	idleInterval = time.Second
	idleAfter    = time.Second
	mappingPause = 5 * time.Millisecond // where programs begin all the time, they wake us no more often
)

// readEvents applies events until ctx ends or nothing is left to trace. What
// is in the ring by then is still applied.
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

// sleep has the next event wake us.
func (t *Tracer) sleep() error {
	return t.coll.Maps["reader_sleeps"].Put(uint32(0), uint32(1))
}

// drain applies events until the ring is empty, but not so many that other
// duties would wait.
func (t *Tracer) drain(record *ringbuf.Record) (n int) {
	for ; n < 1<<16; n++ {
		err := t.events.ReadInto(record)
		if bpf.IsRingEmpty(err) {
			t.desk.RingWasEmpty()
			t.emptied.Add(1)
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
			t.desk.Take()
			t.lost++
			t.turn.Done()
		}
	}
	return n
}

// take books an event. One that nobody foresaw costs no more than itself.
func (t *Tracer) take(e *bpf.Event, details *bpf.Details) {
	t.desk.Take()
	defer t.turn.Done()
	defer func() {
		if r := recover(); r != nil {
			t.lost++
			t.defects.Note("an event", r)
		}
	}()
	t.turn.Passed(e.Time)
	t.handle(e, details)
}

// handle takes one event; in a turn.
func (t *Tracer) handle(e *bpf.Event, details *bpf.Details) {
	switch e.Kind {
	case bpf.KindHeld:
		t.jobs.add(job{kind: jobHeld, pid: e.Pid})
		return
	case bpf.KindTables:
		if t.process(e.Pid) != nil {
			t.jobs.add(job{kind: jobLoad, pid: e.Pid})
		}
		return
	case bpf.KindExit:
		t.exited(e)
		return
	case bpf.KindExec:
		t.executed(e)
		return
	}
	p := t.process(e.Pid)
	if p == nil {
		if e.Kind == bpf.KindAllocator {
			t.dropAllocator(allocatorOf(e), false)
		}
		t.ignore(e)
		return
	}
	if e.Flags&bpf.FlagNoTables != 0 && p.loaded && p.layout == 0 {
		t.noRoomForTables++
	}
	switch e.Kind {
	case bpf.KindAllocator, bpf.KindBlock, bpf.KindBlockFree, bpf.KindBlockFailed, bpf.KindTotals:
		t.handleBlock(e, p)
		return
	}
	if e.Kind == bpf.KindInit {
		t.jobs.add(job{kind: jobScan, pid: e.Pid})
		return
	}
	p.changed = e.Time
	event := &t.event
	var ok bool
	if *event, ok = functions.Translate(e, details); !ok {
		t.lost++
		return
	}
	if event.Op == 0 {
		return
	}
	if e.Kind == bpf.KindAlloc {
		t.disinherit(p)
	}
	if !p.besideCapture {
		if doubt := functions.Doubt(e, event); doubt != "" {
			p.besideCapture = true
			t.turn.Tell(ledger.Warning{PID: p.pid, Text: doubt})
		}
	}
	t.turn.Apply(event)
	t.wantDevice(p, event)
	if event.Op == ledger.AllocFailed && event.Result == bpf.OutOfMemory {
		t.outOfMemory(p, OOM{PID: e.Pid, Time: e.Time, Stack: e.Stack, API: event.API, Kind: event.Kind, Device: event.Device, Size: event.Size})
	}
	if event.Op == ledger.Alloc && !p.user {
		p.user = true
		t.jobs.add(job{jobIntroduce, p.pid})
		t.usage.Soon()
	}
}

// ignore takes an event of a process that is not traced out of the kernel's
// counts of stacks: with --name it sends some until somebody has looked at its name.
func (t *Tracer) ignore(e *bpf.Event) {
	if p := t.processes[e.Pid]; p != nil && p.nameless && (e.Kind == bpf.KindAlloc || e.Kind == bpf.KindFree) {
		t.namelessCalls++
	}
	switch e.Kind {
	case bpf.KindAlloc, bpf.KindAllocFailed, bpf.KindBlock, bpf.KindBlockFailed:
	case bpf.KindCall:
		if f := functions.ByID(e.Function); f == nil || !f.Stack || f.IsObject() {
			return
		}
	default:
		return
	}
	t.ignoredStacks++
	if e.Flags&bpf.FlagNoTables != 0 {
		t.ignoredNoStack++
	}
}

// stats reads what the kernel half could not do; in a turn.
func (t *Tracer) stats() ledger.Stats {
	var counters [bpf.CounterCount]uint64
	for i := range counters {
		_ = t.coll.Maps["counters"].Lookup(uint32(i), &counters[i])
	}
	s := ledger.Stats{
		Lost:      t.lost + counters[bpf.CounterEventLost] + counters[bpf.CounterThreadsFull] + counters[bpf.CounterTooDeep] + counters[bpf.CounterUnreadable],
		Stacks:    counters[bpf.CounterStacks] - min(t.ignoredStacks, counters[bpf.CounterStacks]),
		StacksBy:  t.stacks.Lost(),
		Torn:      counters[bpf.CounterTorn],
		Truncated: map[string]uint64{},
	}
	s.Missing = t.missing(&counters)
	for _, n := range s.Missing {
		s.NoStack += n
	}
	s.LostBy, _ = t.lostBy()
	var code uint32
	var count uint64
	for i := t.coll.Maps["truncated_stacks"].Iterate(); i.Next(&code, &count); {
		if count > 0 {
			s.Truncated[unwind.Reason(code)] += count
		}
	}
	return s
}

// missing says why events have no stack; in a turn.
func (t *Tracer) missing(counters *[bpf.CounterCount]uint64) map[string]uint64 {
	noTables := counters[bpf.CounterNoTables] - min(t.ignoredNoStack, counters[bpf.CounterNoTables])
	noRoom := min(t.noRoomForTables, noTables)
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
