// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
)

const (
	// maxPoints is how many moments a series keeps: when it is full, each two become one.
	maxPoints = 600
	// maxRecent is how many of the latest moments are kept one by one, to measure growth.
	maxRecent = 64
	// growthSpan is the time over which growth is measured, ns.
	growthSpan = 60e9
	// maxSeries is how many rows are kept at most; those of processes that ended go first.
	maxSeries = 1 << 10
	// maxEndedSeries is how many rows of processes that ended are kept.
	maxEndedSeries = 64
)

// series has the memory of each process and GPU over the time of the screen, in bounded memory. All
// rows have the same moments.
type series struct {
	times  []uint64 // of points, ns; each point is the highest value since the one before
	open   bool     // the last point may still rise
	step   uint64   // least time between two points, ns
	recent []uint64 // times of the latest moments
	gpus   map[gpuKey]*track
	rows   map[rowKey]*track
	seen   int // moments
}

// track is one row over time.
type track struct {
	all    values
	planes [planeCount]values
	recent []int64 // total at series.recent
	gone   uint64  // when its process ended; 0: it runs
	fresh  int     // the moment that it was in last
	// Of a GPU: traced processes on it.
	running int
}

// values are points. They begin at the series's point number from; the ones before are 0.
type values struct {
	from int
	list []int64
	peak int64
}

func newSeries() *series {
	return &series{step: 1e9, gpus: map[gpuKey]*track{}, rows: map[rowKey]*track{}}
}

// add takes a moment, and sets the growth of its rows.
func (s *series) add(b *books) {
	now := b.Snapshot.End
	if n := len(s.recent); n > 0 && now <= s.recent[n-1] {
		s.setGrowth(b)
		return
	}
	s.seen++
	s.begin(now)
	for i := range b.gpus {
		g := &b.gpus[i]
		t := trackOf(s.gpus, g.key)
		if g.running < t.running { // what a process gave back says nothing of the others
			t.recent = t.recent[:0]
		}
		t.running = g.running
		t.take(s, int64(g.used), &g.planes)
	}
	for i := range b.processes {
		x := &b.processes[i]
		if s.rows[x.key] == nil && (x.ended != 0 || len(s.rows) >= maxSeries) {
			continue
		}
		t := trackOf(s.rows, x.key)
		if t.gone == 0 && x.ended != 0 {
			t.gone = now
		}
		t.take(s, x.live, &x.planes)
	}
	s.rest()
	s.setGrowth(b)
}

func trackOf[K comparable](list map[K]*track, key K) *track {
	t := list[key]
	if t == nil {
		t = &track{}
		list[key] = t
	}
	return t
}

// begin makes room for a moment, and decides whether it is a new point.
func (s *series) begin(now uint64) {
	s.open = len(s.times) > 0 && now-s.times[len(s.times)-1] < s.step
	if !s.open {
		if len(s.times) >= maxPoints {
			s.halve()
		}
		s.times = append(s.times, now)
	}
	if len(s.recent) >= maxRecent {
		s.recent = append(s.recent[:0], s.recent[maxRecent/2:]...)
		for _, t := range s.tracks() { // their last ones are of the same moments
			t.recent = append(t.recent[:0], t.recent[max(0, len(t.recent)-len(s.recent)):]...)
		}
	}
	s.recent = append(s.recent, now)
}

func (s *series) tracks() []*track {
	list := make([]*track, 0, len(s.gpus)+len(s.rows))
	for _, t := range s.gpus {
		list = append(list, t)
	}
	for _, t := range s.rows {
		list = append(list, t)
	}
	return list
}

// halve joins each two points.
func (s *series) halve() {
	for _, t := range s.tracks() {
		t.all.halve()
		for k := range t.planes {
			t.planes[k].halve()
		}
	}
	kept := s.times[:0]
	for i := 0; i < len(s.times); i += 2 {
		kept = append(kept, s.times[i])
	}
	s.times = kept
	s.step *= 2
}

func (v *values) halve() {
	if len(v.list) == 0 {
		return
	}
	kept, from := make([]int64, 0, maxPoints/2+1), v.from/2
	for i := from; i <= (v.from+len(v.list)-1)/2; i++ {
		a, b := v.at(2*i), v.at(2*i+1)
		if 2*i+1 >= v.from+len(v.list) {
			b = a
		}
		kept = append(kept, max(a, b))
	}
	v.from, v.list = from, kept
}

// at returns the value of a point.
func (v *values) at(i int) int64 {
	if i < v.from || i >= v.from+len(v.list) {
		return 0
	}
	return v.list[i-v.from]
}

// set adds the value of the latest point n, or raises it.
func (v *values) set(n int, value int64) {
	v.peak = max(v.peak, value)
	if len(v.list) == 0 {
		if value == 0 {
			return
		}
		v.from = n
	}
	if n-v.from < len(v.list) {
		v.list[n-v.from] = max(v.list[n-v.from], value)
		return
	}
	for len(v.list) < n-v.from { // not seen for a while
		v.list = append(v.list, 0)
	}
	v.list = append(v.list, value)
}

func (t *track) take(s *series, all int64, planes *[planeCount]int64) {
	n := len(s.times) - 1
	t.fresh = s.seen
	t.all.set(n, all)
	for k := range planes {
		t.planes[k].set(n, planes[k])
	}
	t.recent = append(t.recent, all)
}

// rest takes moments of rows that are in the books no more, and drops the oldest of them.
func (s *series) rest() {
	var none [planeCount]int64
	var gone []rowKey
	for key, t := range s.rows {
		if t.fresh != s.seen {
			if t.gone == 0 {
				t.gone = s.recent[len(s.recent)-1]
			}
			t.take(s, 0, &none)
			t.fresh = 0
		}
		if t.gone != 0 {
			gone = append(gone, key)
		}
	}
	for _, t := range s.gpus {
		if t.fresh != s.seen {
			t.take(s, 0, &none)
		}
	}
	most := max(0, min(maxEndedSeries, maxSeries-len(s.rows)+len(gone)))
	if len(gone) <= most {
		return
	}
	slices.SortFunc(gone, func(a, b rowKey) int { return cmp.Or(cmp.Compare(s.rows[b].gone, s.rows[a].gone), a.compare(&b)) })
	for _, key := range gone[most:] {
		delete(s.rows, key)
	}
}

// setGrowth sets the growth of processes and GPUs: in the last minute, as far as it was seen, or in
// the later half of the session.
func (s *series) setGrowth(b *books) {
	for i := range b.processes {
		x := &b.processes[i]
		t := s.rows[x.key]
		if t != nil {
			x.peak = max(x.peak, t.all.peak)
		}
		if x.ended != 0 {
			continue
		}
		if t == nil || !s.recentGrowth(t, &x.growth) {
			x.growth = halfGrowth(x.siteGrowth, b.half)
		}
	}
	for i := range b.gpus {
		g := &b.gpus[i]
		t := s.gpus[g.key]
		if t != nil && s.recentGrowth(t, &g.growth) {
			continue
		}
		for k := range b.Snapshot.GPUs {
			if t != nil && len(t.recent) < len(s.recent) {
				break // a process has ended since
			}
			if x := &b.Snapshot.GPUs[k]; x.UUID == g.key.uuid && x.EarlierTime != 0 && x.Time > x.EarlierTime {
				g.growth = perMinute(int64(x.Used)-int64(x.EarlierUsed), x.Time-x.EarlierTime)
			}
		}
	}
}

func halfGrowth(bytes int64, half uint64) growth { return perMinute(bytes, half) }

func perMinute(bytes int64, ns uint64) growth {
	if ns == 0 {
		return growth{}
	}
	return growth{int64(float64(bytes) * 60e9 / float64(ns)), ns}
}

// leastRecent is how many moments growth needs, over at least leastSpan.
const (
	leastRecent = 4
	leastSpan   = 3e9
)

// recentGrowth measures growth as the least of the later half of the last minute less that of the
// earlier half: what comes and goes within a step of training does not count.
func (s *series) recentGrowth(t *track, g *growth) bool {
	n := len(s.recent)
	k := min(len(t.recent), n)
	times, list := s.recent[n-k:], t.recent[len(t.recent)-k:]
	for len(times) > 0 && times[len(times)-1]-times[0] > growthSpan {
		times, list = times[1:], list[1:]
	}
	if len(times) < leastRecent || times[len(times)-1]-times[0] < leastSpan {
		return false
	}
	half := len(times) / 2
	earlier, later := slices.Min(list[:half]), slices.Min(list[half:])
	between := meanTime(times[half:]) - meanTime(times[:half])
	*g = growth{int64(float64(later-earlier) * 60e9 / between), times[len(times)-1] - times[0]}
	return true
}

func meanTime(list []uint64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += float64(v - list[0])
	}
	return float64(list[0]) + sum/float64(len(list))
}
