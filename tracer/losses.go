// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// losses counts what the kernel half and the tracer could not do. The goroutine that reads the
// events ring counts what it could not book; any goroutine may call the methods that return sums.
type losses struct {
	coll   *ebpf.Collection
	stacks *stacks.Store
	reader *stacks.Reader
	shares *shares.Shares
	meter  *budget.Meter

	undecodable      atomic.Uint64 // events that could not be decoded or booked
	ignoredStacks    atomic.Uint64 // stacks of processes that are not traced
	ignoredNoStack   atomic.Uint64 // their events without a stack
	ignoredTruncated atomic.Uint64 // their stacks that were not walked to the end
	noRoomForTables  atomic.Uint64 // events without a stack of processes whose unwind tables found no room
}

// ignore takes an event of a process that is not traced out of the kernel's counts of stacks.
func (l *losses) ignore(e *bpf.Event) {
	switch e.Kind {
	case bpf.KindAlloc, bpf.KindAllocFailed, bpf.KindBlock, bpf.KindBlockFailed:
	case bpf.KindCall:
		if f := cudaapi.ByID(e.Function); f == nil || !f.Stack || f.IsObject() {
			return
		}
	default:
		return
	}
	l.ignoredStacks.Add(1)
	switch {
	case e.Flags&bpf.FlagNoTables != 0:
		l.ignoredNoStack.Add(1)
	case e.Flags&bpf.FlagTruncated != 0:
		l.ignoredTruncated.Add(1)
	}
}

// stats returns what the kernel half and the tracer could not do.
func (l *losses) stats() ledger.Stats {
	var counters [bpf.CounterCount]uint64
	for i := range counters {
		_ = l.coll.Maps["counters"].Lookup(uint32(i), &counters[i])
	}
	s := ledger.Stats{
		LostFor:   l.byReason(),
		Stacks:    counters[bpf.CounterStacks] - min(l.ignoredStacks.Load(), counters[bpf.CounterStacks]),
		StacksBy:  l.stacks.Lost(),
		Torn:      counters[bpf.CounterTorn],
		Truncated: map[string]uint64{},
		Cost:      l.meter.Cost(),
	}
	for _, n := range s.LostFor {
		s.Lost += n
	}
	s.Missing = l.missing(&counters)
	for _, n := range s.Missing {
		s.NoStack += n
	}
	s.LostBy, _ = l.shares.Lost()
	var code uint32
	var count uint64
	for i := l.coll.Maps["truncated_stacks"].Iterate(); i.Next(&code, &count); {
		if count > 0 {
			s.Truncated[unwind.Reason(code)] += count
		}
	}
	// An event does not carry the reason. Nearly all walks of ignored processes end for this one,
	// because vramprof has loaded no tables for them.
	if n, ignored := s.Truncated[unwind.NoTables], l.ignoredTruncated.Load(); n > ignored {
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

// byReason counts the events that are not booked, by reason.
func (l *losses) byReason() map[string]uint64 {
	list := map[string]uint64{}
	add := func(reason string, n uint64) {
		if n > 0 {
			list[reason] = n
		}
	}
	for i, reason := range lossReasons {
		var n uint64
		_ = l.coll.Maps["counters"].Lookup(i, &n)
		add(reason, n)
	}
	add(ledger.LostUndecodable, l.undecodable.Load())
	add(ledger.LostSkipped, l.skipped())
	return list
}

// skipped counts runs of the probes' programs that the kernel left out: before Linux 5.19, while
// another BPF program, or a system call on a BPF map, is interrupted on that CPU.
func (l *losses) skipped() (sum uint64) {
	for _, p := range l.coll.Programs {
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
func (l *losses) missing(counters *[bpf.CounterCount]uint64) map[string]uint64 {
	noTables := counters[bpf.CounterNoTables] - min(l.ignoredNoStack.Load(), counters[bpf.CounterNoTables])
	noRoom := min(l.noRoomForTables.Load(), noTables)
	list := map[string]uint64{
		"as unwind tables were not loaded yet":        noTables - noRoom,
		"as there was no room for unwind tables":      noRoom,
		"as there was no room in the ring of stacks":  counters[bpf.CounterStackLost],
		"as they could not be read":                   l.reader.Lost(),
		"as the unwinder's programs were not entered": counters[bpf.CounterChainBroken],
	}
	maps.DeleteFunc(list, func(_ string, n uint64) bool { return n == 0 })
	return list
}

// faults returns sentences on what the kernel half counted and no figure of the ledger shows.
func (l *losses) faults() (list []string) {
	for _, x := range []struct {
		counter uint32
		text    string
	}{
		{bpf.CounterNotNoted, "contexts and stream captures of processes that have too many, so that devices or graphs may be unknown: %d"},
		{bpf.CounterNotFollowed, "children of traced processes were not followed, since there were too many: %d"},
		{bpf.CounterNotHeld, "libraries that the command loaded without being paused, so that their first calls may be missed: %d"},
	} {
		var n uint64
		if err := l.coll.Maps["counters"].Lookup(x.counter, &n); err == nil && n > 0 {
			list = append(list, fmt.Sprintf(x.text, n))
		}
	}
	return list
}
