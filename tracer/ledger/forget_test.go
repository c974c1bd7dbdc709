// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// without removes processes from a snapshot, as if they had been forgotten.
func without(s *Snapshot, gone func(*Process) bool) {
	to, kept := make([]int, len(s.Processes)), []Process(nil)
	for i := range s.Processes {
		to[i] = -1
		if !gone(&s.Processes[i]) {
			to[i] = len(kept)
			kept = append(kept, s.Processes[i])
		}
	}
	s.Processes = kept
	s.Sites = keepOf(s.Sites, to, func(x *Site) *int { return &x.Process })
	s.Failures = keepOf(s.Failures, to, func(x *Failure) *int { return &x.Process })
	s.Releases = keepOf(s.Releases, to, func(x *Release) *int { return &x.Process })
	s.Pools = keepOf(s.Pools, to, func(x *Pool) *int { return &x.Process })
	s.Tensors = keepOf(s.Tensors, to, func(x *Tensors) *int { return &x.Process })
	s.Objects = keepOf(s.Objects, to, func(x *Object) *int { return &x.Process })
	s.Balances = keepOf(s.Balances, to, func(x *Balance) *int { return &x.Process })
	s.Walks = keepOf(s.Walks, to, func(x *Walked) *int { return &x.Process })
	s.Peaks = keepOf(s.Peaks, to, func(x *Peak) *int { return &x.Process })
	for i := range s.Sites {
		x := &s.Sites[i]
		n := len(x.Owners)
		x.Owners = keepOf(x.Owners, to, func(o *Owner) *int { return &o.Process })
		x.MoreOwners = x.MoreOwners || len(x.Owners) < n
	}
}

func keepOf[T any](list []T, to []int, process func(*T) *int) (kept []T) {
	for _, x := range list {
		if p := process(&x); to[*p] >= 0 {
			*p = to[*p]
			kept = append(kept, x)
		}
	}
	return kept
}

// sumAll sums what all processes of a snapshot have allocated and freed by kind, with those that it
// has forgotten.
func sumAll(s *Snapshot) map[string]uint64 {
	sums := map[string]uint64{}
	add := func(kind Kind, objects, bytes, freed, freedBytes uint64) {
		sums[fmt.Sprint(kind, " objects")] += objects
		sums[fmt.Sprint(kind, " bytes")] += bytes
		sums[fmt.Sprint(kind, " freed")] += freed
		sums[fmt.Sprint(kind, " freed bytes")] += freedBytes
	}
	for _, p := range s.Processes {
		for _, t := range p.Totals {
			add(t.Kind, t.AllocObjects, t.AllocBytes, t.AllocObjects-t.LiveObjects, t.AllocBytes-t.LiveBytes)
		}
	}
	for _, o := range s.Objects {
		add(o.Kind, o.Made, 0, o.Made-o.Live, 0)
	}
	for _, f := range s.Failures {
		sums["failures"] += f.Count
		sums["failed bytes"] += f.Bytes
	}
	for _, x := range s.Forgotten.Sums {
		add(x.Kind, x.AllocObjects, x.AllocBytes, x.FreeObjects, x.FreeBytes)
	}
	sums["failures"] += s.Forgotten.Failures
	sums["failed bytes"] += s.Forgotten.FailedBytes
	sums["processes"] = uint64(len(s.Processes)) + s.Forgotten.Processes
	return sums
}

// manyEvent returns an event of one of many processes, some of which end.
func manyEvent(rng *rand.Rand, now uint64) Event {
	e := randomEvent(rng)
	e.PID, e.Time = uint32(1+rng.Uint64N(12)), now
	switch rng.Uint64N(40) {
	case 0:
		return Event{Op: Exit, PID: e.PID, Time: now}
	case 1:
		return Event{Op: Exec, PID: e.PID, Time: now}
	case 2, 3:
		return Event{Op: AllocFailed, Kind: Device, PID: e.PID, Time: now, Stack: e.Stack, Size: 7, Result: 2, API: "a"}
	case 4:
		return Event{Op: OutOfMemory, Kind: Device, PID: e.PID, Time: now, Stack: e.Stack, Size: 7, API: "a"}
	case 5, 6:
		return Event{Op: ObjectCreate, Kind: Module, PID: e.PID, Time: now, Address: e.Address, Stack: e.Stack, API: "m"}
	case 7, 8, 9, 10, 11:
		return Event{
			Op: Alloc, Kind: Tensor, Space: Blocks, PID: e.PID, Time: now, Address: e.Address << 20, Size: e.Size << 9, Stack: e.Stack, API: "torch",
			Told: ToldAllocated | ToldLive, Allocated: 1 << 20, Reserved: 2 << 20, Live: e.Size << 9,
		}
	}
	return e
}

// manyInput returns another input, or nil.
func manyInput(rng *rand.Rand, now uint64) Input {
	pid := uint32(1 + rng.Uint64N(12))
	switch rng.Uint64N(60) {
	case 0:
		return UsageReading{Time: now, Usages: []Usage{{PID: pid, UUID: "A", Bytes: rng.Uint64N(99)}, {PID: pid + 1, UUID: "B", Bytes: 3}}}
	case 1:
		return Process{PID: pid, Begin: now, Comm: "python", User: 1 + pid%3}
	case 2:
		return Warning{PID: pid, Text: fmt.Sprint("process ", pid, " is odd")}
	case 3:
		return Devices{PID: pid, UUIDs: []string{"A", "B"}}
	case 4:
		return Stats{Lost: now / 1e9, LostBy: map[uint32]uint64{pid: now / 1e9, pid + 1: now / 2e9}}
	case 5:
		return Segments{1}
	case 6:
		return WalkOpened{PID: pid, Time: now}
	case 7:
		return Walk{PID: pid, Time: now, Holders: []Holder{{Path: "a", Retention: retention.Known}}, Storages: []Storage{{Address: 1 << 20, Bytes: 512, Block: 512}}}
	}
	return nil
}

// TestForgetLeavesEverythingElseUnchanged compares books with and without it after each of many
// moments, and with the sums of both.
func TestForgetLeavesEverythingElseUnchanged(t *testing.T) {
	forgotten := uint64(0)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 11))
		all, some := New(Options{Begin: 10}), New(Options{Begin: 10})
		before := uint64(0)
		for now := uint64(100e9); now < 2000e9; now += rng.Uint64N(3e9) {
			e := manyEvent(rng, now)
			all.Apply(&e)
			some.Apply(&e)
			if in := manyInput(rng, now); in != nil {
				all.Tell(in)
				some.Tell(in)
			}
			if rng.Uint64N(100) != 0 {
				continue
			}
			before = max(before, now-rng.Uint64N(100e9))
			all.purge(now)
			some.Tell(Forget{before})
			for _, l := range []*Ledger{all, some} {
				l.Tell(Segments{1}) // as each question is asked again
			}
			moveAll(some)
			checkForgotten(t, all, some, now, before)
			checkLedger(t, some)
			if t.Failed() {
				t.Fatalf("seed %d at %d", seed, now)
			}
		}
		forgotten += some.gone.Processes
	}
	if forgotten < 500 {
		t.Errorf("only %d processes were forgotten", forgotten)
	}
}

func checkForgotten(t *testing.T, all, some *Ledger, now, before uint64) {
	t.Helper()
	want, got := all.Snapshot(now, time.Time{}), some.Snapshot(now, time.Time{})
	all.AddPeaks(want)
	some.AddPeaks(got)
	if a, b := sumAll(want), sumAll(got); !reflect.DeepEqual(a, b) {
		t.Errorf("sums with Forget %v\nwithout %v", b, a)
	}
	without(want, func(p *Process) bool { return p.End != 0 && p.End < before && p.End+grace <= now })
	for i := range want.Processes {
		want.Processes[i].Lost = got.Processes[i].Lost // of pids that were reused
	}
	for _, s := range []*Snapshot{want, got} {
		s.Forgotten, s.Stats.UnknownSizes, s.Warnings = Forgotten{}, 0, nil
		s.Peaks = s.Peaks[:min(len(s.Peaks), 10)]
		for i := range s.Peaks {
			s.Peaks[i].Books = nil
		}
	}
	a, b := reflect.ValueOf(*want), reflect.ValueOf(*got)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			t.Errorf("%s: %s", a.Type().Field(i).Name, firstDifference(x, y))
		}
	}
}

func firstDifference(want, got reflect.Value) string {
	if want.Kind() != reflect.Slice {
		return fmt.Sprintf("%+v, want %+v", got, want)
	}
	for i := range min(want.Len(), got.Len()) {
		if x, y := want.Index(i), got.Index(i); !reflect.DeepEqual(x.Interface(), y.Interface()) {
			return fmt.Sprintf("%d is %+v, want %+v", i, y, x)
		}
	}
	return fmt.Sprintf("%d, want %d", got.Len(), want.Len())
}

// TestForgottenProcessesTakeNothing: after all have left, the books are as large as new ones.
func TestForgottenProcessesTakeNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := New(Options{Begin: 10})
	now := uint64(100e9)
	for range 20_000 {
		e := manyEvent(rng, now)
		l.Apply(&e)
		if in := manyInput(rng, now); in != nil {
			l.Tell(in)
		}
		now += 1e7
	}
	for pid := range uint32(20) {
		l.Apply(&Event{Op: Exit, PID: pid, Time: now})
	}
	before := sumAll(l.Snapshot(now, time.Time{}))
	l.Tell(Stats{})
	l.Tell(Forget{now + 10e9})
	s := l.Snapshot(now, time.Time{})
	if after := sumAll(s); !reflect.DeepEqual(before, after) {
		t.Errorf("sums were %v, are %v", before, after)
	}
	if len(s.Processes)+len(s.Sites)+len(s.Failures)+len(s.Warnings) != 0 || s.Stats.UnknownSizes != 0 {
		t.Errorf("left in the snapshot: %+v", s)
	}
	for name, n := range map[string]int{
		"processes": len(l.procs), "pids": len(l.byPID), "alive": len(l.alive),
		"segments": len(l.archive.segments), "names": len(l.archive.apis.number),
		"exports": len(l.exports), "users": len(l.users), "processes of users": len(l.ofUser),
		"losses": len(l.lost.events) + len(l.lost.stacks), "warned": len(l.warned), "ended": len(l.ended),
		"held blocks": l.heldBlocks, "listed": l.listedBlocks,
	} {
		if n != 0 {
			t.Errorf("%s: %d are left", name, n)
		}
	}
	for x := range tables {
		if n := l.quotas[x].Used(); n != 0 {
			t.Errorf("%s: %d places are taken", tableNames[x], n)
		}
	}
}

// TestMemoryOfALargeProcessIsGivenBack once it has ended, and what others have stays as it is.
func TestMemoryOfALargeProcessIsGivenBack(t *testing.T) {
	l := New(Options{Begin: 1})
	alloc := func(pid uint32, n uint64) {
		for i := range n {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Time: 1e9 + i, Address: i + 1, Size: 10, Stack: i % 100, API: "a"})
		}
	}
	alloc(1, 1000)
	small := heapBytes()
	alloc(2, 200_000)
	large := heapBytes()
	l.Apply(&Event{Op: Free, PID: 1, TID: 1, Time: 2e9, Address: 500})
	before := l.Snapshot(20e9, time.Time{})
	l.Apply(&Event{Op: Exit, PID: 2, Time: 2e9})
	l.Tell(Forget{20e9})
	if after := heapBytes(); after-small > (large-small)/20 {
		t.Errorf("%d bytes with the process, %d when it has left", large-small, after-small)
	}
	l.Apply(&Event{Op: FreeFailed, PID: 1, TID: 1, Time: 2e9, Address: 500, Result: 1})
	l.Apply(&Event{Op: Free, PID: 1, TID: 1, Time: 2e9, Address: 700})
	l.Apply(&Event{Op: FreeFailed, PID: 1, TID: 1, Time: 2e9, Address: 700, Result: 1})
	checkLedger(t, l)
	checkWindows(t, l)
	after := l.Snapshot(20e9, time.Time{})
	if a, b := before.Processes[0].Totals[0].LiveObjects+1, after.Processes[0].Totals[0].LiveObjects; a != b {
		t.Errorf("%d allocations live, want %d", b, a)
	}
	runtime.KeepAlive(l)
}

// TestProcessesAreBookedForAsLongAsSomeAreForgotten: more than there is room for at once.
func TestProcessesAreBookedForAsLongAsSomeAreForgotten(t *testing.T) {
	l := New(Options{Begin: 1, maxProcesses: 64})
	for i := range uint64(1000) {
		at := (i + 1) * 1e9
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: uint32(1 + i), Time: at, Address: 1, Size: 10, Stack: i, API: "a"})
		l.Apply(&Event{Op: Exit, PID: uint32(1 + i), Time: at})
		l.Tell(Forget{at - 1})
	}
	s := l.Snapshot(2000e9, time.Time{})
	if s.Stats.Lost != 0 || len(s.Processes)+int(s.Forgotten.Processes) != 1000 || sumAll(s)["1 bytes"] != 10_000 {
		t.Errorf("%d lost, %d processes, %d forgotten, sums %v", s.Stats.Lost, len(s.Processes), s.Forgotten.Processes, sumAll(s))
	}
	if cap(l.procs) > 16 || sitesIn(l) > 16 {
		t.Errorf("room for %d processes, %d sites", cap(l.procs), sitesIn(l))
	}
}

// TestLossesOfAForgottenPidAreNotThoseOfTheNextProcess, although they are still reported.
func TestLossesOfAForgottenPidAreNotThoseOfTheNextProcess(t *testing.T) {
	l := New(Options{Begin: 1})
	begin := func(at uint64) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: at, Address: 1, Size: 10, API: "a"})
	}
	begin(1e9)
	l.Tell(Stats{Lost: 5, LostBy: map[uint32]uint64{7: 5}})
	l.Apply(&Event{Op: Exit, PID: 7, Time: 2e9})
	l.Tell(Forget{10e9})
	l.Tell(Stats{Lost: 6, LostBy: map[uint32]uint64{7: 6}})
	begin(20e9)
	l.Tell(Stats{Lost: 8, LostBy: map[uint32]uint64{7: 8}})
	s := l.Snapshot(30e9, time.Time{})
	if len(s.Processes) != 1 || s.Processes[0].Lost != 2 {
		t.Errorf("processes %+v, want one that lost 2 events", s.Processes)
	}
}

// TestAWarningStaysAsLongAsAnyProcessThatItIsOf.
func TestAWarningStaysAsLongAsAnyProcessThatItIsOf(t *testing.T) {
	l := New(Options{Begin: 1})
	for pid := uint32(1); pid <= 2; pid++ {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: 1e9, Address: 1, Size: 10, API: "a"})
		l.Tell(Warning{pid, "strange"})
	}
	l.Tell(Warning{0, "of the session"})
	for pid, want := range [][]string{{"strange", "of the session"}, {"of the session"}} {
		l.Apply(&Event{Op: Exit, PID: uint32(pid + 1), Time: uint64(pid+1) * 10e9})
		l.Tell(Forget{uint64(pid+2)*10e9 - 1})
		if got := l.Snapshot(100e9, time.Time{}).Warnings; !slices.Equal(got, want) {
			t.Errorf("after process %d: %q, want %q", pid+1, got, want)
		}
	}
}
