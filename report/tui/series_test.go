// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"maps"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// hour plays moments into series: process 1 grows by a MiB a moment, and each tenth moment a
// process comes and goes.
func hour(s *series, from, to int, step uint64) {
	for i := from; i < to; i++ {
		live := int64(i) << 20
		b := &books{Moment: Moment{Snapshot: &ledger.Snapshot{End: uint64(i+1) * step}}, gpus: []gpu{{key: gpuKey{uuid: "a"}, used: uint64(live)}}}
		add := func(pid uint32, live int64, ended uint64) {
			x := process{key: rowKey{process: ledger.ProcessID{PID: pid}}, live: live, ended: ended}
			x.planes[tensorPlane] = live
			b.processes = append(b.processes, x)
		}
		add(1, live, 0)
		if i%10 < 5 {
			add(uint32(100+i/10), 5<<20, 0)
		} else if i%10 == 5 {
			add(uint32(100+i/10), 0, 1)
		}
		s.add(b)
	}
}

func TestSeriesStaySmall(t *testing.T) {
	s := newSeries()
	hour(s, 0, 20_000, reporttest.Second)
	if len(s.times) > maxPoints || len(s.recent) > maxRecent || len(s.rows) > maxEndedSeries+2 {
		t.Errorf("%d points, %d recent moments, %d rows", len(s.times), len(s.recent), len(s.rows))
	}
	for key, x := range s.rows {
		for _, v := range append(x.planes[:], x.all) {
			if n := v.from + len(v.list); len(v.list) > 0 && n > len(s.times) || cap(v.list) > 2*maxPoints {
				t.Errorf("%v: points %d to %d of %d, room for %d", key, v.from, n, len(s.times), cap(v.list))
			}
		}
		if len(x.recent) > len(s.recent) {
			t.Errorf("%v: %d recent moments of %d", key, len(x.recent), len(s.recent))
		}
	}
	x := s.rows[rowKey{process: ledger.ProcessID{PID: 1}}]
	if n := len(s.times); x.all.at(n-1) != 19_999<<20 {
		t.Errorf("the last point is %d", x.all.at(n-1)>>20)
	}
	for i, time := range s.times { // a point is the highest value from its time to the next point's
		at, next := int64(time/reporttest.Second-1), int64(20_000)
		if i+1 < len(s.times) {
			next = int64(s.times[i+1]/reporttest.Second - 1)
		}
		if got := x.all.at(i) >> 20; got != next-1 {
			t.Fatalf("point %d of %d (moments %d to %d) is %d", i, len(s.times), at, next-1, got)
		}
	}
}

func TestOfProcessesThatEndAtOnceTheSameAreKept(t *testing.T) {
	kept := func() map[rowKey]bool {
		s, keys := newSeries(), map[rowKey]bool{}
		for i, ended := range []uint64{0, 1} {
			b := &books{Moment: Moment{Snapshot: &ledger.Snapshot{End: uint64(i+1) * reporttest.Second}}}
			for pid := range uint32(2 * maxEndedSeries) {
				b.processes = append(b.processes, process{key: rowKey{process: ledger.ProcessID{PID: pid}}, live: 1, ended: ended})
			}
			s.add(b)
		}
		for key := range s.rows {
			keys[key] = true
		}
		return keys
	}
	first := kept()
	if len(first) != maxEndedSeries {
		t.Errorf("%d rows, want %d", len(first), maxEndedSeries)
	}
	if !maps.Equal(first, kept()) {
		t.Error("other rows are kept of the same moments")
	}
}

func TestGrowthIsOfTheLastMinute(t *testing.T) {
	s := newSeries()
	hour(s, 0, 300, reporttest.Second)
	b := &books{Moment: Moment{Snapshot: &ledger.Snapshot{End: 300 * reporttest.Second}}, processes: []process{{key: rowKey{process: ledger.ProcessID{PID: 1}}}}}
	s.setGrowth(b)
	if g := b.processes[0].growth; g.perMinute>>20 < 59 || g.perMinute>>20 > 61 || g.span > growthSpan {
		t.Errorf("growth %d MiB/min over %d s, want 60 in the last minute", g.perMinute>>20, g.span/reporttest.Second)
	}
}

func TestGrowthIsNotThePhaseOfAStep(t *testing.T) {
	for phase := range 7 {
		s := newSeries()
		b := &books{}
		for i := range 61 {
			live := int64(10+i) << 20
			if (i+phase)%7 > 1 { // five moments of seven have activations
				live += 30 << 30
			}
			*b = books{Moment: Moment{Snapshot: &ledger.Snapshot{End: uint64(i+1) * reporttest.Second}}, processes: []process{{key: rowKey{process: ledger.ProcessID{PID: 1}}, live: live}}}
			s.add(b)
		}
		if g := b.processes[0].growth.perMinute >> 20; g < 45 || g > 75 {
			t.Errorf("phase %d: growth %d MiB/min, want 60", phase, g)
		}
	}
}

func TestGrowthIsOfTheSessionUntilMomentsAreKnown(t *testing.T) {
	s := newSeries()
	b := &books{half: 30 * reporttest.Second, Moment: Moment{Snapshot: &ledger.Snapshot{End: reporttest.Second}},
		processes: []process{{key: rowKey{process: ledger.ProcessID{PID: 1}}, siteGrowth: 10 << 20}}}
	s.add(b)
	if g := b.processes[0].growth; g.perMinute != 20<<20 || g.span != 30*reporttest.Second {
		t.Errorf("growth %+v", g)
	}
}

func TestChroniclesAndScreensOfLongSessionsStaySmall(t *testing.T) {
	m := screenOf(80, 24, Options{}, moments()["torch"])
	x := moments()["session"]
	for i := range 600 {
		s := *x.Snapshot
		s.End += uint64(i) * reporttest.Second
		s.Processes = append([]ledger.Process(nil), s.Processes...)
		for k := range s.Processes { // new ones each time
			s.Processes[k].PID += uint32(10 * i)
			s.Processes[k].End = s.End
		}
		x.Snapshot, x.Note = &s, fmt.Sprint("note ", i)
		send(m, x)
	}
	if n := len(m.chronicle.list); n > maxHappenings {
		t.Errorf("%d happenings", n)
	}
	if n := len(m.series.rows); n > maxEndedSeries+4 {
		t.Errorf("%d rows", n)
	}
}

func TestGrowthOfAGPUBeginsAnewWhenAProcessEnds(t *testing.T) {
	s := newSeries()
	at := func(i int, used uint64, running int) growth {
		b := &books{Moment: Moment{Snapshot: &ledger.Snapshot{End: uint64(i+1) * reporttest.Second}}, gpus: []gpu{{key: gpuKey{uuid: "a"}, used: used, total: 80 << 30, running: running}}}
		s.add(b)
		return b.gpus[0].growth
	}
	for i := range 20 {
		at(i, uint64(i)<<30, 2)
	}
	for i := 20; i < 40; i++ {
		if g := at(i, 1<<30, 1); g.perMinute != 0 {
			t.Fatalf("growth %d MiB/min, %d s after a process has ended", g.perMinute>>20, i-20)
		}
	}
}
