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

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

func TestHistoryShowsGrowthAtEvenSteps(t *testing.T) {
	const second = uint64(1e9)
	l := New(Options{Begin: 5 * second})
	for i := range uint64(3200) { // one allocation of 10 bytes each 10 ms, for 32 s
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 5*second + i*second/100, Address: 1 + i, Size: 10})
	}
	x := l.Snapshot(37*second, time.Time{}).Sites[0]
	if len(x.History) != HistoryLen || x.History[HistoryLen-1] != 32000 {
		t.Fatalf("history %v, want %d values ending in 32000", x.History, HistoryLen)
	}
	for i, live := range x.History[:HistoryLen-1] {
		want := uint64(i+1) * 1000
		if live+1000 < want || live > want+1000 {
			t.Errorf("step %d: %d, want %d within one step", i, live, want)
		}
	}
	if x.Growth < 15000 || x.Growth > 17000 {
		t.Errorf("growth %d, want about 16000", x.Growth)
	}
	// Half a session of silence: no growth.
	if g := l.Snapshot(101*second, time.Time{}).Sites[0].Growth; g != 0 {
		t.Errorf("growth after a silent half %d, want 0", g)
	}
}

func TestOldestAgreesWithALongWayRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := New(Options{})
	now := uint64(1000)
	born := map[uint64]uint64{}
	for range 20000 {
		now += rng.Uint64N(5)
		a := 1 + rng.Uint64N(500)
		e := Event{Op: Alloc, Kind: Device, PID: 7, TID: uint32(rng.Uint64N(4)), Time: now - rng.Uint64N(20), Address: a, Size: 1, Stack: a % 3}
		switch rng.Uint64N(4) {
		case 0, 1:
			born[a] = e.Time
		case 2:
			e.Op = Free
			delete(born, a)
		case 3: // a free that fails changes nothing
			e.Op = Free
			l.Apply(&e)
			e.Op = FreeFailed
		}
		l.Apply(&e)
	}
	oldest := map[uint64]uint64{}
	for a, at := range born {
		if o := oldest[a%3]; o == 0 || at < o {
			oldest[a%3] = at
		}
	}
	for _, x := range l.Snapshot(now, time.Time{}).Sites {
		if x.Oldest != oldest[x.Stack] {
			t.Errorf("stack %d: oldest %d, want %d", x.Stack, x.Oldest, oldest[x.Stack])
		}
	}
}

func TestEndedProcessesGiveTheirBlocksBack(t *testing.T) {
	l := New(Options{})
	for pid := range uint32(100) {
		at := uint64(pid) * 10e9
		for i := range uint64(1000) {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: at, Address: 1 + i, Size: 8})
		}
		l.Apply(&Event{Op: Exit, PID: pid, Time: at + 1})
	}
	if used := sum(l, func(p *process) int { return int(p.entries.used) }); liveIn(l) > 2000 || used > 2000 {
		t.Errorf("%d live, %d blocks after 100 processes of 1000, want no more than 2000", liveIn(l), used)
	}
	s := l.Snapshot(1e12, time.Time{})
	if s.Sites[0].LiveBytes != 8000 || s.Sites[0].Oldest != 0 && s.Processes[s.Sites[0].Process].End == 0 {
		t.Errorf("first site %+v, want its live set as at its end", s.Sites[0])
	}
}

func TestKernelCountersAndWarningsReachTheSnapshot(t *testing.T) {
	l := New(Options{Host: "h"})
	truncated := map[string]uint64{"too deep": 3}
	l.Tell(Stats{Events: 99, Lost: 1, Stacks: 10, NoStack: 2, Missing: map[string]uint64{"late": 2}, Torn: 4, Truncated: truncated, UnmatchedFrees: 99})
	l.Tell(Warning{Text: "one"})
	l.Tell(Warning{Text: "two"})
	l.Tell(Warning{Text: "one"})
	l.Tell(GPUs{{Index: 0, UUID: "GPU-a"}})
	s := l.Snapshot(1, time.Unix(1, 0))
	truncated["too deep"] = 100
	l.Tell(Warning{Text: "three"})
	want := Stats{Lost: 1, Stacks: 10, NoStack: 2, Missing: map[string]uint64{"late": 2}, Torn: 4, Truncated: map[string]uint64{"too deep": 3}}
	if !reflect.DeepEqual(s.Stats, want) {
		t.Errorf("stats %+v, want %+v", s.Stats, want)
	}
	if !slices.Equal(s.Warnings, []string{"one", "two"}) || len(s.GPUs) != 1 {
		t.Errorf("warnings %q, GPUs %v", s.Warnings, s.GPUs)
	}
}

func TestTooManyStacksAreBookedWithoutThem(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 100 MB")
	}
	l := New(Options{})
	for i := range uint64(maxSites/quota.ProcessPart + 1000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Address: 1 + i, Size: 1, Stack: 1 + i})
		l.Apply(&Event{Op: AllocFailed, Kind: Device, PID: 7, Size: 1, Stack: 1 + i, Result: 2})
	}
	s := l.Snapshot(1, time.Time{})
	if len(s.Sites) != maxSites/quota.ProcessPart+1 || len(s.Failures) != maxFailures/quota.ProcessPart+1 || len(s.Warnings) != 2 {
		t.Errorf("%d sites, %d failures, %d warnings", len(s.Sites), len(s.Failures), len(s.Warnings))
	}
	checkBooks(t, s)
}

func TestHostileNumbersMakeNoEndlessListOfSites(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 200 MB")
	}
	l := New(Options{})
	for i := range uint64(2*maxSites/quota.ProcessPart + 1000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Address: 1 + i, Size: 1, Context: 1 + i, Device: int32(i)})
		l.Apply(&Event{Op: AllocFailed, Kind: Device, PID: 7, Size: 1, Result: int32(i), Device: int32(i)})
	}
	if most := 2*maxSites/quota.ProcessPart + maxDevices + 1; sitesIn(l) > most {
		t.Errorf("%d sites, want at most %d", sitesIn(l), most)
	}
	if most := maxFailures/quota.ProcessPart + maxBareFailures + maxDevices + 1; failuresIn(l) > most {
		t.Errorf("%d failures, want at most %d", failuresIn(l), most)
	}
	s := l.Snapshot(1, time.Time{})
	if len(s.Sites) != maxDevices+1 {
		t.Errorf("%d sites are shown, want one for each device and for what has none", len(s.Sites))
	}
	checkBooks(t, s)
}

func TestNoSumWraps(t *testing.T) {
	l := New(Options{})
	for i := range uint64(maxSum/maxSize + 10) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Address: 1 + i, Size: maxSize})
		l.Apply(&Event{Op: Alloc, Kind: Imported, Space: Physical, PID: 7, Address: 1 + i, Size: UnknownSize})
		l.Apply(&Event{Op: Map, PID: 7, Handle: 1 + i, Address: 1, Size: maxSize})
	}
	s := l.Snapshot(1, time.Time{})
	checkBooks(t, s)
	for _, x := range s.Processes[0].Totals {
		if x.AllocBytes != maxSum || x.LiveObjects != maxSum/maxSize+10 {
			t.Errorf("total %+v, want %d bytes and all objects", x, uint64(maxSum))
		}
	}
	if s.Stats.UnknownSizes != 20 {
		t.Errorf("%d without a size, want the last 10 of each kind", s.Stats.UnknownSizes)
	}
}

func TestManyFreesThatMayFailAreNotKeptForEver(t *testing.T) {
	l := New(Options{})
	l.Apply(&Event{Op: Alloc, Kind: VMM, Space: Physical, PID: 7, Address: 1, Size: 1})
	for i := range uint32(3 * maxLastFrees) {
		l.Apply(&Event{Op: Retain, PID: 7, Address: 1, Handle: 1})
		l.Apply(&Event{Op: Map, PID: 7, Handle: 1, Address: 1, Size: 1})
		l.Apply(&Event{Op: Map, PID: 7, Handle: 1, Address: 2, Size: 1})
		for a := range uint64(8) {
			l.Apply(&Event{Op: Map, PID: 7, Handle: 1, Address: 16 + a, Size: 1})
		}
		l.Apply(&Event{Op: Unmap, PID: 7, TID: i, Address: 1, Size: 64})
		if l.quotas[tableUnmapped].Used() > maxKept/quota.ProcessPart || releasesIn(l) > maxLastFrees || freesIn(l) > maxLastFrees {
			t.Fatalf("%d mappings, %d and %d frees are kept", l.quotas[tableUnmapped].Used(), releasesIn(l), freesIn(l))
		}
	}
	checkLedger(t, l)
	l.Apply(&Event{Op: FreeFailed, PID: 7, TID: 3*maxLastFrees - 1, Result: 1})
	if n := l.procs[0].physical.mappings.Len(); n != 10 {
		t.Errorf("%d mappings came back, want 10", n)
	}
	for i := range uint32(3 * maxLastFrees) { // the thread's next free fails
		l.Apply(&Event{Op: Retain, PID: 7, Address: 16, Handle: 2})
		l.Apply(&Event{Op: Free, Space: Physical, PID: 7, TID: i, Address: 2})
		l.Apply(&Event{Op: Free, PID: 7, TID: i, Address: 5})
		l.Apply(&Event{Op: FreeFailed, PID: 7, TID: i, Result: 1})
	}
	if releasesIn(l) > maxLastFrees {
		t.Errorf("%d releases are kept, want at most %d", releasesIn(l), maxLastFrees)
	}
}

// fill books live allocations in so many sites.
func fill(l *Ledger, live, sites uint64, kind Kind, space Space) {
	for i := range live {
		l.Apply(&Event{Op: Alloc, Kind: kind, Space: space, PID: 7, TID: 7, Device: int32(i % 8), Time: i * 1000, Address: 0x7f0000000000 + i*512, Size: 512, Stack: 1 + i%sites, API: "cudaMalloc"})
	}
}

func BenchmarkApply(b *testing.B) {
	for _, live := range []uint64{1e3, 1e6} {
		b.Run(fmt.Sprintf("live=%.0e", float64(live)), func(b *testing.B) { benchmarkApply(b, live, Device, Addresses) })
		b.Run(fmt.Sprintf("tensors=%.0e", float64(live)), func(b *testing.B) { benchmarkApply(b, live, Tensor, Blocks) })
	}
}

func benchmarkApply(b *testing.B, live uint64, kind Kind, space Space) {
	l := New(Options{})
	fill(l, live, min(live, 10000), kind, space)
	rng := rand.New(rand.NewPCG(1, 2))
	now := live * 1000
	b.ReportAllocs()
	for b.Loop() { // one free and one allocation
		now += 1000
		i := rng.Uint64N(live)
		e := Event{Op: Free, Kind: kind, Space: space, PID: 7, TID: 7, Time: now, Address: 0x7f0000000000 + i*512}
		l.Apply(&e)
		e.Op, e.Size, e.Stack, e.Device, e.API = Alloc, 512, 1+i%min(live, 10000), int32(i%8), "cudaMalloc"
		l.Apply(&e)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	b.Run("sites=1e4", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		l := New(Options{})
		fill(l, 1e6, 10000, Device, Addresses)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportAllocs()
		for b.Loop() {
			l.Snapshot(1e10, time.Time{})
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "ledger-MiB")
	})
}

// TestApplyDoesNotAllocateInTheSteadyState, also where a screen reads the highest.
func TestApplyDoesNotAllocateInTheSteadyState(t *testing.T) {
	for kind, space := range map[Kind]Space{Device: Addresses, Tensor: Blocks} {
		l := New(Options{})
		fill(l, 1000, 10, kind, space)
		l.AddHighest(l.Snapshot(1e9, time.Time{}))
		now := uint64(1e9)
		n := testing.AllocsPerRun(10000, func() {
			now += 1e6
			e := Event{Op: Free, Kind: kind, Space: space, PID: 7, TID: 7, Time: now, Address: 0x7f0000000000}
			l.Apply(&e)
			e.Op, e.Size, e.Stack, e.API = Alloc, 512, 1, "cudaMalloc"
			l.Apply(&e)
		})
		if n != 0 {
			t.Errorf("kind %d: %v allocations for each free and allocation, want 0", kind, n)
		}
	}
}

func TestWarningsAreBoundedAndSayThatThereWereMore(t *testing.T) {
	l := New(Options{Begin: 1})
	for i := range 3 * maxWarnings {
		l.Tell(Warning{Text: fmt.Sprint("process ", i)})
	}
	s := l.Snapshot(2, time.Time{})
	if n := len(s.Warnings); n != maxWarnings+1 || s.Warnings[n-1] != "there were more warnings" || len(l.warned) != n {
		t.Errorf("%d warnings (%d remembered), the last is %q", n, len(l.warned), s.Warnings[n-1])
	}
}
