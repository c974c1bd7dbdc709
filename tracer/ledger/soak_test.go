// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// soak is a session without an end in simulated time: short processes, ten of them per second, each
// with stacks of its own, beside some that stay.
type soak struct {
	l             *Ledger
	now           uint64
	keep, every   uint64 // ns, as serve calls Forget
	events        uint64
	allocs, bytes uint64
	frees         uint64
	failures      uint64
	ooms          uint64
}

const (
	soakStacks   = 10 // of each process
	soakTrainers = 8
)

func (s *soak) apply(e Event) {
	e.Time, e.API = s.now, "cudaMalloc"
	s.events++
	switch e.Op {
	case Alloc:
		s.allocs++
		s.bytes += e.Size
	case Free:
		s.frees++
	case AllocFailed:
		s.failures++
	case OutOfMemory:
		s.ooms++
		s.events-- // it comes in addition
	}
	s.l.Apply(&e)
}

// process runs the i-th short process: it frees most, and ends with the rest. Some fail.
func (s *soak) process(i uint64) {
	pid := uint32(100 + i%30_000)
	s.l.Tell(Process{PID: pid, Begin: s.now, Comm: fmt.Sprint("job", i), User: uint32(1000 + i%5000)})
	for k := range uint64(soakStacks) {
		stack := (i*soakStacks+k+1)*0x9e3779b97f4a7c15 | 1
		s.now += 5e6
		s.apply(Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Address: (k + 1) << 24, Size: 1 << 20, Stack: stack})
		if k%4 != 0 {
			s.apply(Event{Op: Free, PID: pid, TID: pid, Address: (k + 1) << 24})
		}
	}
	switch i % 20 {
	case 0:
		s.apply(Event{Op: AllocFailed, Kind: Device, PID: pid, TID: pid, Size: 1 << 40, Stack: i, Result: 2})
		s.apply(Event{Op: OutOfMemory, Kind: Device, PID: pid, TID: pid, Size: 1 << 40, Stack: i})
	case 1:
		if i%100 == 1 { // 256 warnings have room
			s.l.Tell(Warning{PID: pid, Text: fmt.Sprintf("process %d is odd", pid)})
		}
	case 2:
		s.l.Tell(Stats{LostBy: map[uint32]uint64{pid: i}})
	case 3:
		s.l.Tell(WalkOpened{PID: pid, Time: s.now})
		s.l.Tell(Walk{PID: pid, Time: s.now, Holders: []Holder{{Path: fmt.Sprint("x", i), Retention: retention.Known}}, Storages: []Storage{{Address: 1 << 24, Bytes: 1 << 20, Allocation: true}}})
	}
	s.apply(Event{Op: Exit, PID: pid})
	s.now += 100e6 - 5e6*soakStacks
}

// train allocates and frees in the processes that stay.
func (s *soak) train(i uint64) {
	pid := uint32(1 + i%soakTrainers)
	s.apply(Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Address: 1<<40 + i<<20, Size: 1 << 20, Stack: 1 + i%5})
	if i >= 1000 {
		pid = uint32(1 + (i-1000)%soakTrainers)
		s.apply(Event{Op: Free, PID: pid, TID: pid, Address: 1<<40 + (i-1000)<<20})
	}
}

// heapBytes returns the bytes of live objects.
func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestBooksStayAsLargeAsTheyAre: a million processes and ten million stacks leave books that are no
// larger than those of the first tenth, and every event is in the figures of live processes or in
// the sums of those that left. Without VRAMPROF_SOAK_SERVE it is a hundredth of that.
func TestBooksStayAsLargeAsTheyAre(t *testing.T) {
	processes := uint64(10_000)
	s := &soak{l: New(Options{Begin: 1e9}), now: 2e9, keep: 30e9, every: 5e9}
	if os.Getenv("VRAMPROF_SOAK_SERVE") != "" {
		processes, s.keep, s.every = 1_000_000, uint64(10*time.Minute), uint64(time.Minute)
	}
	var sizes []uint64
	forgot := s.now
	for i, at := uint64(0), uint64(0); i < processes; i++ {
		s.process(i)
		s.train(i)
		if s.now-forgot < s.every {
			continue
		}
		forgot = s.now
		s.l.Tell(Forget{s.now - min(s.keep, s.now)})
		if i < at {
			continue
		}
		at += processes / 50
		sizes = append(sizes, heapBytes())
		t.Logf("after %7d processes, %8d stacks, %6.1f h: %6.1f MiB, %d in the books", i+1, (i+1)*soakStacks, float64(s.now)/3.6e12,
			float64(sizes[len(sizes)-1])/(1<<20), s.l.quotas[tableProcesses].Used())
	}
	rest := sizes[len(sizes)/10+1:]
	if least, most := slices.Min(rest), slices.Max(rest); float64(most) > 1.1*float64(least) {
		t.Errorf("the heap was between %d and %d bytes after the first tenth", least, most)
	}
	s.check(t, processes)
	checkLedger(t, s.l)
}

// check compares the figures with what was told.
func (s *soak) check(t *testing.T, processes uint64) {
	t.Helper()
	snapshot := s.l.Snapshot(s.now, time.Time{})
	sums := sumAll(snapshot)
	for name, x := range map[string][2]uint64{
		"processes":             {sums["processes"], processes + soakTrainers},
		"allocations":           {sums["1 objects"], s.allocs},
		"bytes":                 {sums["1 bytes"], s.bytes},
		"frees":                 {sums["1 freed"], s.frees},
		"failures":              {sums["failures"], s.failures},
		"events":                {snapshot.Stats.Events, s.events},
		"out-of-memory errors":  {snapshot.Stats.OutOfMemory, s.ooms},
		"lost or not matched":   {snapshot.Stats.Lost + snapshot.Stats.UnmatchedFrees + snapshot.Stats.Evicted + snapshot.Stats.Reused, 0},
		"stacks not in books":   {snapshot.Stats.Folded, 0},
		"processes with doubts": {uint64(len(slices.DeleteFunc(slices.Clone(snapshot.Processes), func(p Process) bool { return len(p.Beyond) == 0 }))), 0},
	} {
		if x[0] != x[1] {
			t.Errorf("%s: %d, want %d", name, x[0], x[1])
		}
	}
}
