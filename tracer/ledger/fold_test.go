// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// stackless adds up the sites of a snapshot that differ by stack only.
func stackless(list []Site) (sums []Site) {
	for _, x := range list {
		x.Stack, x.Crowded, x.Growth, x.Oldest, x.History, x.Owners, x.MoreOwners = 0, 0, 0, 0, nil, nil, false
		if x.Kind == Tensor {
			x.API = ""
		}
		x.Holders, x.Recent = nil, nil // compared below
		var all Cohort
		for _, c := range x.Cohorts {
			all.AllocObjects += c.AllocObjects
			all.AllocBytes += c.AllocBytes
			all.LiveObjects += c.LiveObjects
			all.LiveBytes += c.LiveBytes
		}
		if x.Kind == Tensor {
			all = Cohort{} // rounded
		}
		x.Cohorts, x.Window, x.FirstWindow = []Cohort{all}, 0, 0
		i := slices.IndexFunc(sums, func(s Site) bool {
			return s.Process == x.Process && s.API == x.API && s.Kind == x.Kind && s.Device == x.Device && s.Segment == x.Segment
		})
		if i < 0 {
			sums = append(sums, x)
			continue
		}
		s, c := &sums[i], &sums[i].Cohorts[0]
		s.LiveObjects += x.LiveObjects
		s.LiveBytes += x.LiveBytes
		s.AllocObjects += x.AllocObjects
		s.AllocBytes += x.AllocBytes
		s.Peak += x.Peak
		s.Tensors += x.Tensors
		s.Asleep += x.Asleep
		s.Evicted += x.Evicted
		c.AllocObjects += all.AllocObjects
		c.AllocBytes += all.AllocBytes
		c.LiveObjects += all.LiveObjects
		c.LiveBytes += all.LiveBytes
	}
	slices.SortFunc(sums, func(a, b Site) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.API, b.API), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Device, b.Device), compareBool(a.Segment, b.Segment))
	})
	return sums
}

// checkFolded compares books with and without Fold.
func checkFolded(t *testing.T, whole, folded *Ledger, now uint64) {
	t.Helper()
	want, got := whole.Snapshot(now, time.Time{}), folded.Snapshot(now, time.Time{})
	for _, s := range []*Snapshot{want, got} {
		for i := range s.Processes {
			s.Processes[i].Folded, s.Processes[i].Beyond = 0, nil
		}
		for i := range s.Tensors {
			s.Tensors[i].Error = 0
		}
		s.Stats.Folded, s.Warnings, s.Sites = 0, nil, stackless(s.Sites)
		for i := range s.Sites {
			s.Sites[i].Peak = 0 // of Kind Tensor an estimate
		}
	}
	a, b := reflect.ValueOf(*want), reflect.ValueOf(*got)
	for i := range a.NumField() {
		if x, y := a.Field(i), b.Field(i); !reflect.DeepEqual(x.Interface(), y.Interface()) {
			t.Errorf("%s: %s", a.Type().Field(i).Name, firstDifference(x, y))
		}
	}
	checkWindows(t, folded)
}

// checkWindows: the windows of each site add up to its live bytes, which its entries have.
func checkWindows(t *testing.T, l *Ledger) {
	t.Helper()
	sums := map[growth.Group]uint64{}
	for _, p := range l.procs {
		for s := range p.all() {
			if s.kind != aliased {
				sums[s.track.Group()] += checkWindowsOf(t, p, s)
			}
		}
	}
	for _, p := range l.procs {
		for s := range p.all() {
			if whole, _ := s.track.Whole(); s.kind != aliased && whole != sums[s.track.Group()] {
				t.Errorf("cohorts have %d live bytes, their windows %d", whole, sums[s.track.Group()])
			}
		}
	}
}

// checkWindowsOf returns the live bytes in the windows of a site.
func checkWindowsOf(t *testing.T, p *process, s *site) uint64 {
	t.Helper()
	live, objects, err := s.track.Check()
	if err != nil {
		t.Errorf("site %+v: %v", s.siteKey, err)
	}
	entries := uint64(0)
	for e := s.first; e != 0; e = p.entries.at(e).next {
		entries++
	}
	if live != s.liveBytes || !p.purged && objects != entries {
		t.Errorf("site %+v has %d live bytes and %d entries, its windows %d and %d", s.siteKey, s.liveBytes, entries, live, objects)
	}
	return live
}

// TestFoldChangesNoSum at any moment, and events go on as before.
func TestFoldChangesNoSum(t *testing.T) {
	folded := uint64(0)
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 12))
		whole, some := New(Options{Begin: 10}), New(Options{Begin: 10})
		for now := uint64(100e9); now < 1500e9; now += rng.Uint64N(2e9) {
			e := manyEvent(rng, now)
			if e.Stack != 0 {
				e.Stack += rng.Uint64N(6)
			}
			if rng.Uint64N(20) == 0 {
				e.Time -= rng.Uint64N(5e9) // out of order
			}
			in := manyInput(rng, now)
			if _, ok := in.(Segments); ok {
				in = nil // a folded site may have been one
			}
			for _, l := range []*Ledger{whole, some} {
				l.Apply(&e)
				if in != nil {
					l.Tell(in)
				}
			}
			if rng.Uint64N(30) == 0 {
				some.Tell(Fold{uint32(rng.Uint64N(5)), 1 + rng.Uint64N(20)<<(10*rng.Uint64N(2))})
				moveAll(some)
				checkFolded(t, whole, some, now)
				checkLedger(t, some)
			}
			if t.Failed() {
				t.Fatalf("seed %d at %d", seed, now)
			}
		}
		checkFolded(t, whole, some, 2000e9)
		folded += some.stats.Folded
	}
	if folded < 300 {
		t.Errorf("only %d sites were folded", folded)
	}
}

// TestFoldedSitesAreToldAsSuch: the largest keeps its stack.
func TestFoldedSitesAreToldAsSuch(t *testing.T) {
	l := New(Options{Begin: 1})
	for i := range uint64(10) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 1e9 + i, Address: i + 1, Size: 10 * (i + 1), Stack: i + 1, API: "cudaMalloc"})
	}
	l.Tell(Fold{Below: 100})
	l.Apply(&Event{Op: Free, PID: 7, Time: 3e9, Address: 2})
	s := l.Snapshot(4e9, time.Time{})
	if len(s.Sites) != 2 || s.Sites[0].Stack != 0 || s.Sites[0].LiveBytes != 450-20 || s.Sites[0].Crowded != 9 || s.Sites[1].Stack != 10 {
		t.Errorf("sites %+v", s.Sites)
	}
	if s.Processes[0].Folded != 9 || s.Stats.Folded != 9 || !slices.Equal(s.Warnings, []string{"process 7: memory was scarce, so that sites with little memory have lost their stack"}) {
		t.Errorf("folded %d, in all %d, warnings %q", s.Processes[0].Folded, s.Stats.Folded, s.Warnings)
	}
}

// processorTime returns how much of it this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestFoldEvadesNoLimit: a process with a context for each allocation cannot fill the books by
// having its sites lose their stacks. It takes no time that grows with their square.
func TestFoldEvadesNoLimit(t *testing.T) {
	l := New(Options{Begin: 1})
	began := processorTime(t)
	for i := range uint64(150_000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: 1e9 + i, Address: i + 1, Size: 10, Stack: 1, Context: i + 1, API: "a"})
		if i%30_000 == 29_999 {
			l.Tell(Fold{Below: 1 << 20})
		}
	}
	if n := sitesIn(l); n > 2*maxSites/quota.ProcessPart+8 {
		t.Errorf("%d sites of one process", n)
	}
	if took := processorTime(t) - began; took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	checkLedger(t, l)
}

// TestFoldGivesMemoryBack of 50,000 sites with their windows and histories.
func TestFoldGivesMemoryBack(t *testing.T) {
	const sites = 50_000
	l := New(Options{Begin: 1})
	empty := heapBytes()
	at := uint64(1e9)
	for round := range uint64(4) {
		for i := range uint64(sites) {
			at += 1000
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: at, Address: round<<20 + i + 1, Size: 10 + i/(sites-100)<<20, Stack: i + 1, API: "cudaMalloc"})
			if round > 0 {
				l.Apply(&Event{Op: Free, PID: 7, Time: at, Address: (round-1)<<20 + i + 1})
			}
		}
	}
	full := heapBytes()
	l.Tell(Fold{Below: 1 << 20})
	folded := heapBytes()
	s := l.Snapshot(at, time.Time{})
	if len(s.Sites) != 101 || s.Sites[100].LiveObjects != sites-100 && s.Sites[0].LiveObjects != sites-100 {
		t.Errorf("%d sites", len(s.Sites))
	}
	entries := uint64(sites) * 90
	t.Logf("%d KiB with sites, %d KiB folded", (full-empty)>>10, (folded-empty)>>10)
	if folded-empty > (full-empty)/4+2*entries {
		t.Errorf("%d bytes with sites, %d folded", full-empty, folded-empty)
	}
	checkLedger(t, l)
	checkWindows(t, l)
	runtime.KeepAlive(l)
}
