// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Trend is how an amount of memory changes: that of a plane, not of a line of code.
type Trend struct {
	Class Class
	Rate  float64       // bytes per second, of Growing and Leaking
	Grown uint64        // bytes, since the growth began
	Over  time.Duration // since then, without Idle
	Needs time.Duration // of Growing: as in Verdict
	Idle  time.Duration // since the process last allocated; 0 of readings, and if unknown
}

// Paused reports whether the process has allocated nothing for half as long as the amount grew: it
// may never go on.
func (t *Trend) Paused() bool { return t.Grows() && t.Idle > t.Over/2 }

// Grows reports whether the amount grows, for certain or perhaps.
func (t *Trend) Grows() bool { return t.Class >= Growing }

// Add adds the growth of another part of the same amount.
func (t *Trend) Add(x Trend) {
	if !t.Grows() || x.Grows() && x.Idle < t.Idle {
		t.Idle = x.Idle
	}
	t.Class, t.Over, t.Needs = max(t.Class, x.Class), max(t.Over, x.Over), max(t.Needs, x.Needs)
	t.Grown, t.Rate = t.Grown+x.Grown, t.Rate+x.Rate
}

// Whole has the trends of all that one process has on one device.
type Whole struct {
	Process int // index into Snapshot.Processes
	Device  int32
	Tensors Trend // of PyTorch
	Cache   Trend // of PyTorch: what its segments grow by beyond the tensors
	Driver  Trend // of other allocations
	Stack   int   // index into Snapshot.Sites of the largest site of the cache; -1: none
}

// JudgeWhole judges the planes of each running process and device that has GPU memory, by the same
// tests as lines of code, which JudgeLines judged. Tensors and other allocations are Leaking only
// where a line is. A plane that does not grow by its own figures grows as its lines that leak.
func JudgeWhole(s *ledger.Snapshot, lines []Group) []Whole {
	j := newJudge(s, nil)
	at := map[processDevice]int{}
	var list []Whole
	var sites [][3][]int // tensors, segments, others
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Kind != ledger.Tensor && !x.Kind.Owned() || x.Device == ledger.CPUDevice || s.Processes[x.Process].End != 0 {
			continue
		}
		key := processDevice{x.Process, x.Device}
		n, known := at[key]
		if !known {
			n = len(list)
			at[key] = n
			list, sites = append(list, Whole{Process: x.Process, Device: x.Device, Stack: -1}), append(sites, [3][]int{})
		}
		plane := 2
		switch {
		case x.Kind == ledger.Tensor:
			plane = 0
		case x.Segment && j.reports[x.Process]:
			plane = 1
			if w := &list[n]; w.Stack < 0 || unused(x) > unused(&s.Sites[w.Stack]) {
				w.Stack = i
			}
		}
		sites[n][plane] = append(sites[n][plane], i)
	}
	for i := range list {
		w := &list[i]
		w.Tensors, w.Driver = j.lessReplaced(j.trend(sites[i][0], false), w), j.trend(sites[i][2], true)
		e := j.estimateOn(w.Process, w.Device)
		if e != nil && !w.Tensors.Grows() {
			w.Tensors = e.trend()
		}
		w.Cache = j.cacheTrend(sites[i][1], sites[i][0], e)
		var leak [2]Trend
		var perhaps [2]bool
		for k := range lines {
			if g := &lines[k]; g.Process == w.Process && g.Device == w.Device && g.Class >= Growing && (g.Kind == ledger.Tensor || g.Kind.Owned()) {
				plane := 1
				if g.Kind == ledger.Tensor {
					plane = 0
				}
				if perhaps[plane] = true; g.Class < Leaking {
					continue
				}
				leak[plane].Add(Trend{Class: Leaking, Rate: g.Rate.Value, Over: g.Over, Grown: min(uint64(g.Rate.Value*g.Over.Seconds()), g.LiveBytes)})
			}
		}
		w.Tensors.follow(leak[0], perhaps[0] || e != nil)
		w.Driver.follow(leak[1], perhaps[1])
		for _, t := range []*Trend{&w.Tensors, &w.Cache, &w.Driver} {
			if last := s.Begin + j.lives[w.Process].end; t.Grows() && last < s.End {
				t.Idle = time.Duration(s.End - last)
			}
		}
	}
	return list
}

// lessReplaced takes off the growth of tensors what was freed meanwhile of those from before the
// attach. What is left of less than half is no growth.
func (j *judge) lessReplaced(t Trend, w *Whole) Trend {
	freed, session := j.replaced[processDevice{w.Process, w.Device}], j.s.End-j.s.Begin
	if !t.Grows() || len(freed) == 0 || session == 0 || t.Grown == 0 {
		return t
	}
	begin := j.lives[w.Process].end - min(uint64(t.Over), j.lives[w.Process].end)
	at := min(int(float64(begin)/float64(session)*float64(len(freed))), len(freed)-1)
	older := freed[len(freed)-1] - freed[at]
	grown := t.Grown - min(older, t.Grown)
	if grown < t.Grown/2 {
		return Trend{Class: Steady}
	}
	t.Rate *= float64(grown) / float64(t.Grown)
	t.Grown = grown
	return t
}

// follow makes a trend agree with what lines that leak grow by, and with whether any perhaps grows:
// a sum that only perhaps does, of lines that do not, comes and goes.
func (t *Trend) follow(lines Trend, perhaps bool) {
	switch {
	case t.Class == Growing && !perhaps:
		*t = Trend{Class: Steady}
	case lines.Class < Leaking:
		t.Class = min(t.Class, Growing)
	case t.Class < Growing:
		*t = lines
	default:
		t.Class, t.Needs = Leaking, 0
	}
}

func unused(x *ledger.Site) uint64 { return x.LiveBytes - min(x.Tensors, x.LiveBytes) }

// growth is how a sum of sites grows.
type growth struct {
	site *ledger.Site
	series
	run
	class Class
}

// grows judges the sum of some sites; mixed: they are of several kinds.
func (j *judge) grows(sites []int, mixed bool) (g growth, ok bool) {
	if len(sites) == 0 {
		return g, false
	}
	g.site = j.sum(sites)
	if g.series = newSeries(g.site, j.lives[g.site.Process]); len(g.w) == 0 {
		return g, false
	}
	g.run, g.class = g.classify()
	if g.class == Leaking && g.from > 0 && !g.exceeds(&g.run, g.before(&g.run)) {
		g.class = Growing
	}
	if !mixed {
		j.doubt(g.site, &g.series, &g.run, &g.class)
		j.recently(g.site, &g.series, &g.run, &g.class)
	}
	if g.class == Growing && uint64(g.ns(g.width(g.from, len(g.w)))) < uint64(minTime) { // all begin so
		g.class = Steady
	}
	return g, g.class >= Growing && g.rate.Value > 0
}

// trend returns the trend of a sum of sites.
func (j *judge) trend(sites []int, mixed bool) Trend {
	g, ok := j.grows(sites, mixed)
	if !ok {
		return Trend{Class: min(max(g.class, OneOff), Cache)}
	}
	n := len(g.w)
	t := g.trend()
	t.Grown = g.w[n-1].Floor - min(g.w[g.from].Floor, g.w[n-1].Floor)
	if t.Grown == 0 { // a single window, or a level that has just begun
		t.Grown = uint64(t.Rate * t.Over.Seconds())
	}
	return t
}

func (g *growth) trend() Trend {
	t := Trend{Class: g.class, Rate: g.rate.Value, Over: time.Duration(g.ns(g.width(g.from, len(g.w))))}
	if g.class == Growing {
		t.Needs = time.Duration(min(g.needs, 1e9) * float64(time.Second)).Round(time.Second)
	}
	return t
}

// cacheTrend returns by how much segments grow beyond the tensors in them. Segments that grow as
// their tensors do are no growth of the cache.
func (j *judge) cacheTrend(segments, tensors []int, e *estimate) Trend {
	g, ok := j.grows(segments, false)
	if !ok {
		return Trend{Class: min(max(g.class, OneOff), Cache)}
	}
	t := g.trend()
	grown := g.site.LiveBytes - min(g.w[g.from].Floor, g.site.LiveBytes)
	used := uint64(0)
	if len(tensors) > 0 {
		used = risen(j.seriesOf(j.sum(tensors), g.horizon), g.start+g.ns(float64(g.from)))
	}
	if e != nil { // lines have lost what they had
		used = e.risen(g.start + g.ns(float64(g.from)))
	}
	t.Grown = grown - min(used, grown)
	if t.Grown < minWaste || t.Grown < grown/2 {
		return Trend{Class: Cache}
	}
	t.Rate *= float64(t.Grown) / float64(grown)
	t.doubtWarmUp()
	return t
}

func (t *Trend) doubtWarmUp() {
	if t.Class == Leaking && t.Over < longWarmUp {
		t.Class, t.Needs = Growing, longWarmUp-t.Over
	}
}

// A cache grows while new sizes come, often for longer than tensors do: so long its growth may be a
// warm-up.
const longWarmUp = 30 * time.Second

// risen returns by how much the mean rose since a time, ns after Begin.
func risen(v series, since uint64) uint64 {
	n, before := len(v.w), uint64(0)
	if n == 0 {
		return 0
	}
	for i := range v.w {
		if v.start+v.ns(float64(i)+0.5) > since {
			break
		}
		before = v.w[i].Mean
	}
	now := v.w[n-1].Mean
	return now - min(before, now)
}

// Level is an amount of memory at a time, ns of CLOCK_MONOTONIC.
type Level struct{ Time, Bytes uint64 }

// mostLevels is how many windows the levels of a session are judged in.
const mostLevels = 16

// JudgeLevels judges amounts that are known at some times only, such as NVML's readings, in the
// order of time.
func JudgeLevels(s *ledger.Snapshot, list []Level) Trend {
	if len(list) < 2 || list[0].Time < s.Begin {
		return Trend{Class: Steady}
	}
	first, last := list[0].Time, list[len(list)-1].Time
	n := min(mostLevels, len(list)-1)
	window := (last - first) / uint64(n)
	if window == 0 {
		return Trend{Class: Steady}
	}
	x := ledger.Site{Window: window, FirstWindow: first - s.Begin, Cohorts: make([]ledger.Cohort, n), LiveBytes: list[len(list)-1].Bytes}
	k, level := 0, list[0].Bytes
	for i := range x.Cohorts {
		w := &x.Cohorts[i]
		w.Floor = level // nothing is known of it: as before
		for seen := false; k < len(list) && (list[k].Time < first+uint64(i+1)*window || i == n-1); k++ {
			level = list[k].Bytes
			if !seen || level < w.Floor {
				w.Floor = level
			}
			if seen = true; level > x.Peak {
				w.High, w.AllocBytes, w.LiveBytes = level, w.AllocBytes+level-x.Peak, w.LiveBytes+level-x.Peak
				w.AllocObjects, x.Peak = 1, level
			}
		}
		w.Mean = w.Floor
	}
	v := newSeries(&x, life{begin: x.FirstWindow, end: x.FirstWindow + window*uint64(n)})
	g := growth{site: &x, series: v}
	if g.run, g.class = v.classify(); g.class < Growing || g.rate.Value <= 0 {
		return Trend{Class: min(max(g.class, OneOff), Cache)}
	}
	t := g.trend()
	t.Grown = x.LiveBytes - min(v.w[g.from].Floor, x.LiveBytes)
	if t.Grown < leastLevel {
		return Trend{Class: Steady}
	}
	return t
}

// JudgeCachedLevels is JudgeLevels of what is kept for later allocations.
func JudgeCachedLevels(s *ledger.Snapshot, list []Level) Trend {
	t := JudgeLevels(s, list)
	t.doubtWarmUp()
	return t
}

// leastLevel is the least growth of NVML's figures that is worth a word: a context and its first
// modules are larger.
const leastLevel = 64 << 20

// TooShort returns how long a session should be to judge growth, if no running process was seen for
// minTime; otherwise 0.
func TooShort(s *ledger.Snapshot) time.Duration {
	longest := uint64(0)
	for i := range s.Processes {
		if p := &s.Processes[i]; p.End == 0 {
			longest = max(longest, s.End-min(max(p.Begin, s.Begin), s.End))
		}
	}
	if longest == 0 || longest >= uint64(minTime) {
		return 0
	}
	return decides
}

// decides is what is advised where a session was too short: within 10 s, 96 % of the leaks of the
// test programs are found.
const decides = 15 * time.Second

// trend returns how all tensors grow, whatever lines have lost.
func (e *estimate) trend() Trend {
	over := e.phases[len(e.phases)-1].To - e.phases[0].From
	grown := uint64(max(e.grown.Value, 0) * float64(over) / 1e9)
	if over < uint64(minTime) || e.grown.Low <= 0 || grown < leastRise {
		return Trend{Class: Steady}
	}
	return Trend{Class: Growing, Rate: e.grown.Value, Grown: grown, Over: time.Duration(over)}
}

// risen returns by how much all tensors rose since a time, ns after Begin.
func (e *estimate) risen(since uint64) uint64 {
	before, now := uint64(math.MaxUint64), uint64(0)
	for _, p := range e.phases {
		if p.Floor == math.MaxUint64 {
			continue
		}
		if p.From <= since || before == math.MaxUint64 {
			before = p.Floor
		}
		now = p.Floor
	}
	return now - min(before, now)
}

// leastRise is the least growth of all tensors that is worth a word where no line is known.
const leastRise = 1 << 20
