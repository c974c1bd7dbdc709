// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// recentModel computes a recent past in the simplest way: it keeps every event.
type recentModel struct {
	cohortModel
	begin uint64
	first uint64 // finest window
	began uint64 // newest finest window when the cohorts became longer than that
}

func (m *recentModel) tick(time uint64) uint64 { return (time - m.begin) >> growth.RecentShift }

// range returns the least live bytes between two times, and their mean.
func (m *recentModel) levels(from, to uint64) (floor uint64, mean float64) {
	live, since, area := uint64(0), from, 0.0
	floor = math.MaxUint64
	for i, at := range m.times {
		if at >= to {
			break
		}
		if at >= from {
			floor = min(floor, live, m.cohortModel.levels[i])
			area += float64(live) * float64(at-since)
			since = at
		}
		live = m.cohortModel.levels[i]
	}
	return min(floor, live), (area + float64(live)*float64(to-since)) / float64(to-from)
}

// lived returns what was allocated in some windows, and what of it lived at a time.
func (m *recentModel) lived(from, to, time uint64) (alloc, live uint64) {
	for i, birth := range m.births {
		if n := m.tick(birth); n >= from && n < to && birth < time {
			alloc += m.sizes[i]
			if m.deaths[i] == 0 || m.deaths[i] >= time {
				live += m.sizes[i]
			}
		}
	}
	return alloc, live
}

// record returns the record of a level.
func (m *recentModel) record(newest uint64, level int) (r Record) {
	size := uint64(1) << (growth.RecentStep * level)
	r.Lowest = math.MaxUint64
	for from := max(m.first, growth.RecentStart(m.began, level)) / size * size; from < growth.RecentStart(newest, level); from += size {
		for _, at := range m.times { // when it left the horizon
			if growth.RecentStart(m.tick(at), level) > from {
				floor, _ := m.levels(m.begin+from<<growth.RecentShift, m.begin+(from+size)<<growth.RecentShift)
				if from > m.first {
					r.Floor, r.Lowest = max(r.Floor, floor), min(r.Lowest, floor)
				}
				if next := growth.RecentStart(m.tick(at), level+1); next <= from && growth.RecentStart(newest, level+1) > from {
					_, kept := m.lived(from, from+size, at)
					r.Kept = max(r.Kept, kept)
				}
				break
			}
		}
	}
	return r
}

func TestARecentPastIsWhatHappenedInItsWindows(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := recentModel{begin: 1e9}
		l := New(Options{Begin: m.begin})
		var alive []int
		now, live := m.begin+rng.Uint64N(1e15), uint64(0)
		for range 400 {
			before := m.tick(now)
			now += 1 + rng.Uint64N(1<<(20+rng.Uint64N(23)))
			if len(m.times) > 0 && m.began == 0 && m.tick(now)-m.first >= CohortLen {
				m.began = before
			}
			if len(alive) > 0 && rng.IntN(5) < 2 {
				k := rng.IntN(len(alive))
				i := alive[k]
				alive = append(alive[:k], alive[k+1:]...)
				m.deaths[i] = now
				live -= m.sizes[i]
				l.Apply(&Event{Op: Free, PID: 7, TID: 7, Time: now, Address: uint64(i+1) << 20})
			} else {
				if len(m.times) == 0 {
					m.first = m.tick(now)
				}
				size := 1 + rng.Uint64N(1000)
				alive = append(alive, len(m.births))
				m.births, m.deaths, m.sizes = append(m.births, now), append(m.deaths, 0), append(m.sizes, size)
				live += size
				l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: now, Address: uint64(len(m.births)) << 20, Size: size, Stack: 1, API: "cudaMalloc"})
			}
			m.times, m.cohortModel.levels = append(m.times, now), append(m.cohortModel.levels, live)
			if rng.IntN(50) == 0 {
				m.check(t, l.Snapshot(now+rng.Uint64N(1e12), time.Time{}), now)
				checkWindows(t, l)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func (m *recentModel) check(t *testing.T, s *Snapshot, now uint64) {
	t.Helper()
	r := s.Sites[0].Recent
	newest := m.tick(now)
	if r == nil {
		if growth.RecentStart(newest, 0) > m.first {
			t.Errorf("no recent past after %d windows", newest-m.first)
		}
		return
	}
	if r.Newest != newest || len(r.Windows) != growth.RecentPlace(newest, m.first)+1 {
		t.Fatalf("%d windows up to %d, want %d up to %d", len(r.Windows), r.Newest, growth.RecentPlace(newest, m.first)+1, newest)
	}
	for i, x := range growth.RecentSpans(newest, m.first) {
		w := &r.Windows[i]
		alloc, live := m.lived(x.From, x.To, math.MaxUint64)
		from, to := m.begin+x.From<<growth.RecentShift, m.begin+x.To<<growth.RecentShift
		floor, mean := m.levels(from, min(to, now+1))
		if w.AllocBytes != alloc || w.LiveBytes != live || w.Floor != floor || math.Abs(float64(w.Mean)-mean) > 1+mean/1000 {
			t.Errorf("window %d, %+v: %+v, want %d bytes, %d live, floor %d, mean %.0f", i, x, *w, alloc, live, floor, mean)
		}
	}
	for level := range r.Records {
		got, want := r.Records[level], m.record(newest, level)
		if want.Young = got.Young; got != want { // Young is compared where no time is left out

			t.Errorf("level %d: record %+v, want %+v", level, got, want)
		}
	}
	for level := 0; ; level++ {
		h, ok := r.Horizon(level)
		if !ok {
			break
		}
		var alloc, live uint64
		for i, c := range h.Cohorts {
			from := m.begin + h.FirstWindow + uint64(i)*h.Window
			floor, mean := m.levels(from, min(from+h.Window, now+1))
			if c.Floor != floor || math.Abs(float64(c.Mean)-mean) > 1+mean/1000 && i < len(h.Cohorts)-1 {
				t.Errorf("level %d, window %d: %+v, want floor %d and mean %.0f", level, i, c, floor, mean)
			}
			alloc, live = alloc+c.AllocBytes, live+c.LiveBytes
		}
		first := m.tick(m.begin + h.FirstWindow)
		if a, b := m.lived(first, newest+1, math.MaxUint64); alloc != a || live != b {
			t.Errorf("level %d: %d bytes and %d live, want %d and %d", level, alloc, live, a, b)
		}
	}
}
