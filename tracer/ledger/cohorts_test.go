// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// model computes cohorts in the simplest way: it keeps every event.
type cohortModel struct {
	births, deaths, sizes []uint64 // by block; deaths 0: lives
	times, levels         []uint64 // live bytes after each event
}

func (m *cohortModel) cohorts(first, window uint64, n int, now uint64) []Cohort {
	list := make([]Cohort, n)
	for i := range m.births {
		w := &list[(m.births[i]-first)/window]
		w.AllocObjects++
		w.AllocBytes += m.sizes[i]
		if m.deaths[i] == 0 {
			w.LiveObjects++
			w.Seen++
			w.LiveBytes += m.sizes[i]
		}
	}
	peak, live := uint64(0), uint64(0)
	marks := make([]bool, n)
	for i, at := 0, 0; i < n; i++ {
		list[i].Floor = live
		area, since, end := 0.0, first+uint64(i)*window, min(first+uint64(i+1)*window, now)
		for ; at < len(m.times) && (m.times[at]-first)/window == uint64(i); at++ {
			area += float64(live) * float64(m.times[at]-since)
			live, since = m.levels[at], m.times[at]
			list[i].Floor = min(list[i].Floor, live)
			if live > peak {
				peak, marks[i] = live, true
			}
		}
		list[i].Mean = uint64((area + float64(live)*float64(end-since)) / float64(end-(first+uint64(i)*window)))
	}
	for i := range list {
		if marks[i] {
			list[i].High = peak
		}
	}
	return list
}

// nearlyEqual compares cohorts; means may differ by rounding.
func nearlyEqual(a, b []Cohort) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	for i := range min(len(a), len(b)) {
		if x, y := a[i].Mean, b[i].Mean; max(x, y)-min(x, y) > 1+y>>20 {
			return false
		}
		a[i].Mean, b[i].Mean = 0, 0
	}
	return reflect.DeepEqual(a, b)
}

func TestCohortsSayOfEachWindowWhatWasAllocatedAndStillLives(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l, m := New(Options{Begin: 1e9}), cohortModel{}
		var alive []int
		now, live := 1e9+rng.Uint64N(1e9), uint64(0)
		for range 500 {
			now += 1 + rng.Uint64N(1<<(10+rng.Uint64N(20)))
			if len(alive) > 0 && rng.IntN(3) == 0 {
				k := rng.IntN(len(alive))
				i := alive[k]
				alive = append(alive[:k], alive[k+1:]...)
				m.deaths[i] = now
				live -= m.sizes[i]
				l.Apply(&Event{Op: Free, PID: 7, TID: 7, Time: now, Address: uint64(i+1) << 20})
				if rng.IntN(5) == 0 { // it failed
					l.Apply(&Event{Op: FreeFailed, PID: 7, TID: 7, Time: now, Address: uint64(i+1) << 20, Result: 1})
					m.times, m.levels = append(m.times, now), append(m.levels, live)
					m.deaths[i] = 0
					live += m.sizes[i]
					alive = append(alive, i)
				}
			} else {
				size := 1 + rng.Uint64N(1000)
				alive = append(alive, len(m.births))
				m.births, m.deaths, m.sizes = append(m.births, now), append(m.deaths, 0), append(m.sizes, size)
				live += size
				l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: now, Address: uint64(len(m.births)) << 20, Size: size, Stack: 1, API: "cudaMalloc"})
			}
			m.times, m.levels = append(m.times, now), append(m.levels, live)
		}
		s := l.Snapshot(now+rng.Uint64N(1e10), time.Time{})
		x := &s.Sites[0]
		if len(x.Cohorts) > CohortLen || len(x.Cohorts) < CohortLen/2 || x.FirstWindow%x.Window != 0 {
			t.Fatalf("seed %d: %d windows of %d ns from %d on", seed, len(x.Cohorts), x.Window, x.FirstWindow)
		}
		if end := x.FirstWindow + uint64(len(x.Cohorts))*x.Window; end <= now-s.Begin || end-x.Window > now-s.Begin {
			t.Errorf("seed %d: the last window ends at %d, the latest event is of %d", seed, end, now-s.Begin)
		}
		if want := m.cohorts(s.Begin+x.FirstWindow, x.Window, len(x.Cohorts), s.End); !nearlyEqual(x.Cohorts, want) {
			t.Fatalf("seed %d:\n got %v\nwant %v", seed, x.Cohorts, want)
		}
	}
}

func TestCohortsOfTensorsAddUpToTheirExactTotals(t *testing.T) {
	l := play(t, `
sampling 0.5
alloc t=1 addr=a0 size=1024 stack=1 kind=tensor space=blocks dev=0
alloc t=2 addr=b0 size=1024 stack=1 kind=tensor space=blocks dev=0
free t=3 addr=a0 kind=tensor space=blocks
alloc t=4 addr=c0 size=1024 stack=1 kind=tensor space=blocks dev=0
totals t=5 dev=0 allocated=6144 reserved=8192 1024:9/9216-3/3072`)
	x := &l.Snapshot(6e9, time.Time{}).Sites[0]
	var sum Cohort
	for i := range x.Cohorts {
		sum.AllocObjects += x.Cohorts[i].AllocObjects
		sum.AllocBytes += x.Cohorts[i].AllocBytes
		sum.LiveObjects += x.Cohorts[i].LiveObjects
		sum.LiveBytes += x.Cohorts[i].LiveBytes
		sum.Seen += x.Cohorts[i].Seen
	}
	if want := (Cohort{AllocObjects: 9, AllocBytes: 9216, LiveObjects: 6, LiveBytes: 6144, Seen: 2}); sum != want || x.Peak != 6144 {
		t.Errorf("%+v with a peak of %d, want %+v", sum, x.Peak, want)
	}
}

func TestCohortsOfOneSiteInTwoContextsAreSummed(t *testing.T) {
	l := New(Options{})
	for i := range uint64(40) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: i * 1e9, Address: (i + 1) << 20, Size: 10 + i%2, Stack: 1, Context: 1 + i/10%2, API: "cudaMalloc"})
	}
	s := l.Snapshot(50e9, time.Time{})
	x := &s.Sites[0]
	if len(s.Sites) != 1 || len(x.Cohorts) > CohortLen {
		t.Fatalf("%d sites, the first with %d windows", len(s.Sites), len(x.Cohorts))
	}
	var objects, bytes, high uint64
	for _, w := range x.Cohorts {
		objects += w.AllocObjects
		bytes += w.LiveBytes
		high = max(high, w.High)
	}
	if last := x.Cohorts[len(x.Cohorts)-1]; objects != 40 || bytes != 20*10+20*11 || last.Floor != bytes-11 || x.Peak != bytes || high > x.Peak {
		t.Errorf("%d objects, %d bytes, %+v, peak %d", objects, bytes, last, x.Peak)
	}
}

func TestCohortsFollowABlockToItsDevice(t *testing.T) {
	l := play(t, `
alloc t=1 addr=100000 size=2048 stack=1 dev=-1
alloc t=2 addr=200000 size=2048 stack=1 dev=-1
blocks 100000+512@1 200000+512@1`)
	x := &l.Snapshot(4e9, time.Time{}).Sites[0]
	var got []string
	for _, w := range x.Cohorts {
		if w.AllocObjects > 0 {
			got = append(got, fmt.Sprint(w.AllocObjects, w.AllocBytes, w.LiveBytes))
		}
	}
	if x.Device != 1 || !reflect.DeepEqual(got, []string{"1 2048 2048", "1 2048 2048"}) {
		t.Errorf("device %d, windows %v", x.Device, got)
	}
}

func TestTensorsThatGoFromClassToClassHaveOneFloor(t *testing.T) {
	l := New(Options{})
	for i := range uint64(100) { // a list that is copied into a longer one each time
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, TID: 7, Time: i * 1e9, Address: 0x1000000 * (i + 1), Size: 10000 * (i + 1), Stack: 1, API: "torch"})
		l.Apply(&Event{Op: Free, Kind: Tensor, Space: Blocks, PID: 7, TID: 7, Time: i*1e9 + 1, Address: 0x1000000 * i})
	}
	x := &l.Snapshot(100e9, time.Time{}).Sites[0]
	for i, w := range x.Cohorts[1:] {
		began := (x.FirstWindow + uint64(i+1)*x.Window) / 1e9
		if w.Floor < began*10000 || w.Floor > (began+1)*10000 || w.High != x.Peak {
			t.Errorf("window %d: a floor of %d at %d s, high %d of %d", i+1, w.Floor, began, w.High, x.Peak)
		}
	}
	if len(x.Cohorts) < CohortLen/2 || x.Peak != 1000000+990000 {
		t.Errorf("%d windows, peak %d", len(x.Cohorts), x.Peak)
	}
}
