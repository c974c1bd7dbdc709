// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// classify first tries all proofs of growth without end, then all reasons against it.
func (v *series) classify() (run, Class) {
	slows := false
	var paused *run
	if !v.torn {
		r, ok, less := v.bySurvivors()
		switch {
		case ok && r.why == "":
			return r, v.longEnough(&r)
		case ok:
			paused = &r
		}
		slows = less
	}
	r, ok := v.byLevel(v.floors(0, len(v.w)), 1)
	if !ok && v.redrawn() {
		r, ok = v.byLevel(v.means(0, len(v.w)), v.turnover())
	}
	switch {
	case ok && !slows:
		return r, v.longEnough(&r)
	case paused != nil:
		return *paused, Growing
	}
	if r, class := v.onAverage(); class != 0 {
		return r, class
	}
	if r, ok := v.maybe(); ok && v.highest(r.from) {
		return r, Growing
	}
	return run{}, v.harmless()
}

// longEnough returns the class of a growth: Growing if it may stop, because an evaluation or the
// next wave may have just begun.
func (v *series) longEnough(r *run) Class {
	n := len(v.w)
	since := r.from
	if r.floor {
		since += (n - r.from) / 2
	}
	if !v.highest(since) {
		return v.harmless()
	}
	seconds := v.width(r.from, n) * v.window
	life := seconds
	if v.share > 0 {
		life = v.window / v.share
	}
	fell, wave := v.fell(r.from)
	now, longer := float64(v.w[n-1].Floor), waves*wave*v.window-seconds
	share := minShare
	if v.horizon > 0 {
		share = minRecent
	}
	switch short := max((share*life-seconds)/(1-share), minTime.Seconds()-seconds); {
	case short > 0:
		r.why, r.needs = "too early: grows for "+format.Span(v.ns(v.width(r.from, n)))+" only", short
	case longer <= 0 || now >= waves*fell:
		return Leaking
	case now < fell:
		return v.harmless()
	default:
		r.why, r.needs = "too early: grows since it fell from "+format.Bytes(uint64(fell))+", and may fall again", longer
		if r.rate.Value > 0 {
			r.needs = min(longer, (waves*fell-now)/r.rate.Value)
		}
	}
	return Growing
}

// highest reports whether a new maximum was reached since a window. Growth up to an earlier level
// repeats itself, as evaluations do.
func (v *series) highest(from int) bool {
	return slices.ContainsFunc(v.w[from:], func(w ledger.Cohort) bool { return w.High > 0 })
}

// fell returns the floor from which memory fell by half before a window, as where garbage is
// collected in waves, and the longest time of a wave, in windows. Both are 0 if it never fell.
func (v *series) fell(from int) (level, wave float64) {
	most, begin := 0.0, 0
	for i := range v.w[:min(from+1, len(v.w))] {
		f := float64(v.w[i].Floor)
		if most = max(most, f); f < most/2 {
			level, wave = max(level, most), max(wave, float64(i-begin))
			most, begin = f, i
		}
	}
	return level, wave
}

// bySurvivors finds windows up to now that all left survivors, at a rate that does not fall, while
// live memory grew by as much. Otherwise it reports whether survivors become fewer. A run with a
// why may be over.
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
		events := p.seen / v.clump(from, to)
		if !(events >= minSurvivors && p.windows >= minWindows || events >= manySurvived && p.windows >= fewWindows && p.least > 1) {
			break
		}
		if v.slowsDown(from, to) {
			slows = true
			continue
		}
		if v.speedsUp(from, to) || v.ended(from, to, &p) {
			continue
		}
		quarters := v.grew(from, to, &p)
		if v.keepsMore(from, to, &p) {
			quarters = 4
		}
		switch {
		case quarters == 4 && !v.pauses(to, &p):
			return run{from: from, to: to, rate: v.survivorRate(from, to), hits: int(p.windows)}, true, false
		case quarters >= 3 && !ok:
			quarter := v.width(from, to) / 4 * v.window
			r = run{from: from, to: to, rate: v.survivorRate(from, to), hits: int(p.windows), why: "may have ended", needs: quarter}
			ok = v.highest(from + (to-from)/2)
		}
	}
	return r, ok, slows
}

// ended reports whether no window since a time has survivors, which chance does not explain. Less
// than half a window proves nothing: what a step allocates comes at once.
func (v *series) ended(from, to int, p *part) bool {
	since := v.traced(p.last+1, to)
	quiet := since / v.traced(from, to)
	return since >= 0.5 && math.Pow(1-quiet, p.seen/v.clump(from, to)) < chance
}

// pauses reports whether there was no survivor for longer than ever since the first one, by more
// than a window.
func (v *series) pauses(to int, p *part) bool {
	longest, at := 0, p.first
	for i := p.first + 1; i <= p.last; i++ {
		if v.w[i].Seen > 0 {
			longest, at = max(longest, i-at-1), i
		}
	}
	return v.traced(p.last+1, to) > float64(longest+1)
}

// slowsDown reports whether the second half has significantly fewer survivors than the first, or
// whether growth may have ended in the last quarter.
func (v *series) slowsDown(from, to int) bool {
	clump := v.clump(from, to)
	for _, x := range [...]struct {
		quarters int
		least    float64
	}{{2, slower}, {3, goesOn}} {
		early, late, share := v.split(from, to, x.quarters)
		if late*(1-share) < x.least*early*share && atMost(late/clump, (early+late)/clump, share) < chance {
			return true
		}
	}
	return false
}

// speedsUp reports whether the first half has significantly fewer: its survivors were freed over
// time. A leak that began in the first window does not count.
func (v *series) speedsUp(from, to int) bool {
	begin := from
	if to-from > fewWindows {
		from++
	}
	clump := v.clump(from, to)
	first, second, share := v.split(from, to, 2)
	if first*share >= slower*second*(1-share) {
		return false
	}
	return v.forgets(begin) || atMost(first/clump, (first+second)/clump, 1-share) < chance
}

// forgets reports whether windows before one allocated, too, but all of it was freed, as by a cache
// that replaces old entries. Then few survivors in the first half need not be chance.
func (v *series) forgets(from int) bool {
	alloc, live := uint64(0), uint64(0)
	for _, w := range v.w[:from] {
		alloc += w.AllocBytes
		live += w.LiveBytes
	}
	return alloc > 0 && live == 0
}

// split counts the survivors before and after so many quarters, and returns the share of the time
// of the latter.
func (v *series) split(from, to, quarters int) (early, late, share float64) {
	at := from + (to-from)*quarters/4
	return v.sum(from, at).seen, v.sum(at, to).seen, v.traced(at, to) / v.traced(from, to)
}

// grew returns in how many quarters the floor rose by what survived: 4 if it did so over the whole
// run and over its later parts, 3 if not in the last. In a cache that replaces old entries it does
// not. Where noise of the floor hides the difference, survivors must be many and equal in both
// halves, because a cache has some old entries too.
func (v *series) grew(from, to int, p *part) int {
	noise, hidden := v.noise(), false
	for _, part := range [...]int{0, 1, 2, 3} {
		at := from + (to-from)*part/4
		f := v.floors(at, len(v.w))
		growth := max(f[len(f)-1]-f[0], theilSen(f).Value*float64(len(f)-1))
		survived := v.sum(at, to).bytes
		if growth < survived/2-min(noise, v.sum(to, len(v.w)).bytes) { // noise is of what is young
			return part
		}
		hidden = hidden || part < 3 && growth < max(survived/2, noise, v.sampling(f[0], 1))
	}
	first, second, share := v.split(from, to, 2)
	first, second = first*share, second*(1-share)
	if hidden && !(p.seen >= 2*manySurvived && p.windows >= 2*fewWindows && first >= slower*second && second >= slower*first) {
		return 0
	}
	return 4
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
	for i, w := range v.w[from:to] {
		if width := v.traced(from+i, from+i+1); v.watched == nil {
			list = append(list, float64(w.LiveBytes)/v.window)
		} else if width > 0 {
			list = append(list, float64(w.LiveBytes)/v.window/width)
		}
	}
	all := mean(list)
	if all.Low > 0 {
		return all
	}
	if most := middle(list); most.Value > 0 {
		return most
	}
	return Rate{all.Value, 0, all.High} // comes in bursts, and in most windows there is none
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
		r.why, r.needs = "slows down: may be warming up", v.width(0, n)*v.window
	case late.windows >= 2 && v.width(late.last+1, to) <= v.width(from, to)/2:
		r.why = "too early: " + format.Count(uint64(late.seen), "survivor") + " in the second half"
		r.needs = v.width(from, n) * v.window * max(minSurvivors/late.seen-1, minWindows/late.windows-1, 0.25)
	case growth > f[n-1]/4 && slices.IsSorted(f):
		r.why, r.needs = "rose in few steps", v.width(0, n)*v.window*max(minSurvivors/max(p.seen, 1)-1, 1)
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
