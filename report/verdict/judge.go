// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// run is a range of windows in which live memory grew.
type run struct {
	from, to int
	rate     Rate // bytes per second
	hits     int  // windows in which it grew
	floor    bool // as the floor says
	why      string
}

// judge returns the verdict on one site, or on a sum of sites; segments: they are segments of
// PyTorch's allocator.
func (j *judge) judge(x *ledger.Site, segments bool) Verdict {
	l := j.lives[x.Process]
	v := newSeries(x, l)
	if len(v.w) == 0 {
		return Verdict{Class: Steady, Evidence: "nothing is known of when it was allocated"}
	}
	out := Verdict{}
	r, class := v.classify()
	if class == Leaking && !segments {
		if why := j.replaces(x, &v, &r); why != "" {
			class, r.why = Growing, why
		}
	}
	if segments {
		if class == Leaking || class == Growing {
			r.why = "PyTorch's cache grows, its tensors show why"
		} else {
			r.why = "PyTorch's cache"
		}
		r.why += ": " + words.Bytes(min(x.Tensors, x.LiveBytes)) + " of " + words.Bytes(x.LiveBytes) + " given out"
		class = Cache
	}
	out.Class = class
	if class >= Growing {
		out.Rate = r.rate
		out.Score = (float64(r.hits) + 1) / (float64(r.to-r.from) + 2)
	} else if !segments {
		hits := 0
		for i := range v.w[:v.old()] {
			if w := &v.w[i]; w.Seen > 0 && w.High > 0 {
				hits++
			}
		}
		out.Score = (float64(hits) + 1) / (float64(v.old()) + 2)
	}
	if class == Leaking && out.Rate.Value > 0 {
		if room, known := j.room(x); known {
			out.UntilFull = time.Duration(min(room/out.Rate.Value, math.MaxInt64/2e9) * float64(time.Second)).Round(time.Second)
		}
	}
	out.Evidence = j.evidence(x, &v, &r, class)
	return out
}

// classify first tries all proofs of growth without end, then all reasons against it.
func (v *series) classify() (run, Class) {
	slows := false
	if !v.torn {
		r, ok, less := v.bySurvivors()
		if ok {
			return r, v.longEnough(&r)
		}
		slows = less
	}
	if r, ok := v.byFloor(); ok && !slows {
		return r, v.longEnough(&r)
	}
	if r, ok := v.maybe(); ok && v.highest(r.from) {
		return r, Growing
	}
	return run{}, v.harmless()
}

// longEnough returns Growing for a short growth, which may stop: an evaluation may have just begun.
func (v *series) longEnough(r *run) Class {
	if !v.highest(r.from) {
		return v.harmless()
	}
	if v.width(r.from, len(v.w))*v.share >= minShare {
		return Leaking
	}
	r.why = "too early: grows for " + words.Span(v.ns(v.width(r.from, len(v.w)))) + " only"
	return Growing
}

// highest reports whether a new maximum was reached since a window. Growth up to an earlier level
// repeats itself, as evaluations do.
func (v *series) highest(from int) bool {
	return slices.ContainsFunc(v.w[from:], func(w ledger.Cohort) bool { return w.High > 0 })
}

// bySurvivors finds windows up to now that all left survivors, at a rate that does not fall, while
// live memory grew by as much. Otherwise it reports whether survivors become fewer.
func (v *series) bySurvivors() (r run, ok, slows bool) {
	to := v.old()
	for from := 0; from < to; from++ {
		if v.w[from].Seen == 0 {
			continue
		}
		if slows && float64(from) > lumps*float64(to) {
			break
		}
		p := v.sum(from, to)
		if !(p.seen >= minSurvivors && p.windows >= minWindows || p.seen >= manySurvived && p.windows >= fewWindows) {
			break
		}
		if v.slowsDown(from, to) {
			slows = true
			continue
		}
		if v.speedsUp(from, to) || v.ended(from, to, &p) || !v.grew(from, to, &p) {
			continue
		}
		return run{from: from, to: to, rate: v.survivorRate(from, to), hits: int(p.windows)}, true, false
	}
	return run{}, false, slows
}

// ended reports whether no window since a time has survivors, which chance does not explain.
func (v *series) ended(from, to int, p *part) bool {
	quiet := v.width(p.last+1, to) / v.width(from, to)
	return math.Pow(1-quiet, p.seen) < chance
}

// slowsDown reports whether the second half has significantly fewer survivors than the first.
func (v *series) slowsDown(from, to int) bool {
	first, second, share := v.halves(from, to)
	return second*(1-share) < slower*first*share && atMost(second, first+second, share) < chance
}

// speedsUp reports whether the first half has significantly fewer: its survivors were freed over
// time. A leak that began in the first window does not count.
func (v *series) speedsUp(from, to int) bool {
	if to-from > fewWindows {
		from++
	}
	first, second, share := v.halves(from, to)
	return first*share < slower*second*(1-share) && atMost(first, first+second, 1-share) < chance
}

// halves counts the survivors of two halves, and returns the share of the time of the second.
func (v *series) halves(from, to int) (first, second, share float64) {
	middle := (from + to) / 2
	return v.sum(from, middle).seen, v.sum(middle, to).seen, v.width(middle, to) / v.width(from, to)
}

// grew reports whether the floor rose by what survived, over the whole run and over its later part.
// In a cache that replaces old entries it does not. Where noise of the floor hides the difference,
// survivors must be many and equal in both halves, because a cache has some old entries too.
func (v *series) grew(from, to int, p *part) bool {
	noise, hidden := v.noise(), false
	for _, part := range [...]int{0, 1, 2} {
		at := from + (to-from)*part/4
		f := v.floors(at, len(v.w))
		growth := max(f[len(f)-1]-f[0], theilSen(f).Value*float64(len(f)-1))
		survived := v.sum(at, to).bytes
		if growth < survived/2-min(noise, v.sum(to, len(v.w)).bytes) { // noise is of what is young
			return false
		}
		hidden = hidden || growth < max(survived/2, noise, v.sampling(f[0]))
	}
	first, second, share := v.halves(from, to)
	first, second = first*share, second*(1-share)
	return !hidden || p.seen >= 2*manySurvived && p.windows >= 2*fewWindows && first >= slower*second && second >= slower*first
}

// survivorRate returns the mean of what survived of each finished window, or the median if a few
// large blocks make the mean uncertain.
func (v *series) survivorRate(from, to int) Rate {
	if to == len(v.w) && to-from > minWindows && v.passed < 1 {
		to--
	}
	if from == 0 && to-from > minWindows { // began in its middle
		from++
	}
	var list []float64
	for _, w := range v.w[from:to] {
		list = append(list, float64(w.LiveBytes)/v.window)
	}
	if r := mean(list); r.Low > 0 {
		return r
	}
	return middle(list)
}

// byFloor finds windows up to now in which the floor rises by a trend that neither slows down nor
// consists of a few steps: for example, a list of results that is copied into a longer one each
// time, so that no block survives for long.
func (v *series) byFloor() (run, bool) {
	n := len(v.w)
	slows := false
	for from := 0; from+fewWindows+1 < n && !(slows && float64(from) > lumps*float64(n)); from++ {
		f := v.floors(from, n)
		growth := f[len(f)-1] - f[0]
		if growth <= 0 || f[1] <= f[0] || mannKendall(f) < 1.96 {
			continue
		}
		rate := theilSen(f)
		hits, largest, highs := 0, 0.0, 0
		for i := 1; i < len(f); i++ {
			step := f[i] - f[i-1]
			if step > 0 {
				hits++
			}
			largest = max(largest, step)
			if w := &v.w[from+i]; w.High > 0 {
				highs++
			}
		}
		steps := len(f) - 1
		half, late := f[len(f)-1]-f[steps/2], f[len(f)-1]-f[len(f)-1-max(steps/4, 1)]
		switch {
		case hits < minSurvivors && !(v.torn && hits >= minWindows), float64(hits) < 0.6*float64(steps):
		case largest > 0.4*growth || float64(highs) < 0.5*float64(steps):
		case half < 0.3*growth:
			slows = true
		case growth < f[len(f)-1]/3 && (hits < steps || steps < ledger.CohortLen/2):
		case growth < v.sampling(f[len(f)-1]):
		case late <= 0:
		default:
			k := 1 / v.window
			return run{from: from, to: n, rate: Rate{rate.Value * k, rate.Low * k, rate.High * k}, hits: hits, floor: true}, true
		}
	}
	return run{}, false
}

// maybe finds growth that is no proof yet.
func (v *series) maybe() (run, bool) {
	n, to := len(v.w), v.old()
	from := n / 2
	p := v.sum(0, to)
	late := v.sum(from, to)
	f := v.floors(0, n)
	growth := f[n-1] - f[min(from, n-1)]
	r := run{from: from, to: n, hits: int(late.windows), rate: Rate{0, 0, math.Inf(1)}}
	if n > from {
		r.rate = theilSen(f[from:])
		k := 1 / v.window
		r.rate = Rate{r.rate.Value * k, r.rate.Low * k, r.rate.High * k}
	}
	switch {
	case n < 3 || v.torn || growth <= v.noise() || growth < 0.02*f[n-1], p.seen >= minSurvivors && v.ended(0, to, &p):
		return run{}, false
	case p.seen >= 2 && late.windows >= 2 && v.slowsDown(0, to) && !v.ended(from, to, &late):
		r.why = "slows down: may be warming up"
	case late.windows >= 2 && v.width(late.last+1, to) <= v.width(from, to)/2:
		r.why = "too early: " + words.Count(uint64(late.seen), "survivor") + " in the second half"
	case growth > f[n-1]/4 && slices.IsSorted(f):
		r.why = "rose in few steps"
	default:
		return run{}, false
	}
	return r, true
}

// harmless returns the class of a site that does not grow.
func (v *series) harmless() Class {
	n := len(v.w)
	all := v.sum(0, n)
	switch last := v.lastAlloc(); {
	case last < max(n/2, 1) && n > 1 && (last <= max(1, n/4) || all.bytes == 0):
		return OneOff
	case last == 0 && v.w[0].AllocObjects == 1:
		return OneOff
	case all.bytes == 0:
		return Steady
	case last < n/2:
		return Cache
	}
	if old := v.sum(0, max(n-2, 0)); old.windows >= 2 && old.bytes >= all.bytes/4 {
		return Cache
	}
	return Steady
}

// replaces returns how tensors from before the attach were freed as fast as new ones came, which
// then replace them.
func (j *judge) replaces(x *ledger.Site, v *series, r *run) string {
	freed := j.replaced[processDevice{x.Process, x.Device}]
	session := j.s.End - j.s.Begin
	if x.Kind != ledger.Tensor || len(freed) == 0 || session == 0 {
		return ""
	}
	middle := v.start + v.ns(float64(r.from+len(v.w))/2) // of the run
	at := min(int(float64(middle)/float64(session)*float64(len(freed))), len(freed)-1)
	older := float64(freed[len(freed)-1] - freed[at])
	grown := r.rate.Value * float64(session-min(middle, session)) / 1e9
	if older < grown/2 {
		return ""
	}
	return "as much was freed that is older than the attach: may take its place"
}
