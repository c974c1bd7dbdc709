// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	// minRecent is the share of a horizon that growth must take. The shortest horizon is 10 to 14
	// minutes.
	minRecent = 0.5
	// aboveRecord is the share of the growth that must be above all levels before the horizon.
	aboveRecord = 0.5
	// aboveVaried is by how much of what these levels varied it must exceed them: no two days are
	// the same.
	aboveVaried = 0.25
)

// recently judges the horizons of a site's recent past, which are the shorter, the more recent. It
// changes the verdict of its whole life if one of them leaks, and that life does not, or clearly
// slower.
func (j *judge) recently(x *ledger.Site, v *series, r *run, class *Class) {
	for horizon := 1; ; horizon++ {
		recent := j.seriesOf(x, horizon)
		if recent.horizon == 0 {
			return
		}
		if !recent.mayLeak() {
			continue
		}
		run, is := recent.classify()
		if is != Leaking || !recent.isNew(&run) || j.slowing(x, &recent, &run) {
			continue
		}
		if j.doubt(x, &recent, &run, &is); is != Leaking {
			continue
		}
		if *class < Leaking || run.rate.Low > r.rate.High || v.horizon > 0 {
			*v, *r, *class = recent, run, is
		}
	}
}

// seriesOf returns the series of a site or a sum of sites; horizon: as in series. That is 0 in what
// it returns if the process's life is no longer.
func (j *judge) seriesOf(x *ledger.Site, horizon int) series {
	l := j.lives[x.Process]
	if horizon == 0 {
		return newSeries(x, l)
	}
	h, ok := x.Recent.Horizon(horizon - 1)
	if !ok || h.Begin <= l.begin {
		return series{}
	}
	begin := l.begin
	l.begin, l.end = h.Begin, min(l.end, h.FirstWindow+uint64(len(h.Cohorts))*h.Window)
	recent := *x
	recent.Window, recent.FirstWindow, recent.Cohorts = h.Window, h.FirstWindow, h.Cohorts
	v := newSeries(&recent, l)
	v.horizon, v.record = horizon, h.Record
	longer, ok := x.Recent.Horizon(horizon)
	v.remembers = ok && longer.Begin > begin
	return v
}

// slowing reports whether growth goes on that was faster before the horizon: the rest of a warm-up.
func (j *judge) slowing(x *ledger.Site, v *series, r *run) bool {
	for horizon := v.horizon + 1; ; horizon++ {
		longer := j.seriesOf(x, horizon)
		last := longer.horizon == 0
		if last {
			longer = j.seriesOf(x, 0)
		}
		if v.slowerThan(&longer, r) {
			return true
		}
		if last {
			return false
		}
	}
}

// slowerThan reports whether growth was faster in the windows of a longer horizon that grew without
// a pause before a run.
func (v *series) slowerThan(longer *series, r *run) bool {
	n, begin, to := len(v.w), v.start+v.ns(float64(r.from)), 0
	for to < len(longer.w) && longer.start+longer.ns(float64(to)+0.5) < begin {
		to++
	}
	grew := func(i int) bool { return longer.w[i].Seen > 0 }
	if r.floor {
		grew = func(i int) bool { return i > 0 && longer.w[i].Floor > longer.w[i-1].Floor }
	}
	from := to
	for from > 0 && grew(from-1) {
		from--
	}
	if from == to {
		return false
	}
	late, early := v.width(r.from, n)*v.window, longer.width(from, to)*longer.window
	share := late / (late + early)
	if r.floor {
		before, grown := float64(longer.w[to-1].Floor)-float64(longer.w[max(from-1, 0)].Floor), float64(v.w[n-1].Floor)-float64(v.w[r.from].Floor)
		return grown*(1-share) < slower*before*share
	}
	clump, before, survived := v.clump(r.from, n), longer.sum(from, to).seen, v.sum(r.from, n).seen
	return survived*(1-share) < slower*before*share && atMost(survived/clump, (before+survived)/clump, share) < chance
}

// mayLeak reports whether it is worth a closer look: most sites do not grow.
func (v *series) mayLeak() bool {
	n := len(v.w)
	return n >= fewWindows && v.sum(0, n).windows >= fewWindows
}

// isNew reports whether growth exceeds what the site did before the horizon: it reached a higher
// level, or more survives than ever.
func (v *series) isNew(r *run) bool {
	if v.exceeds(r, v.record) {
		return true
	}
	p := v.sum(r.from, r.to)
	return !r.floor && v.keepsMore(r.from, r.to, &p)
}

// exceeds reports whether a run reached a higher level than a record.
func (v *series) exceeds(r *run, record ledger.Record) bool {
	first, last := float64(v.w[r.from].Floor), float64(v.w[len(v.w)-1].Floor)
	return last-max(first, float64(record.Floor)) >= max(aboveRecord*(last-first), aboveVaried*float64(record.Varied()))
}

// before returns the record of the windows before a run.
func (v *series) before(r *run) ledger.Record {
	record := ledger.Record{Lowest: math.MaxUint64}
	for _, w := range v.w[:r.from] {
		record.Floor, record.Lowest = max(record.Floor, w.Floor), min(record.Lowest, w.Floor)
	}
	return record
}

// keepsMore reports whether much more of each window survives than of any one before the horizon,
// at the age at which windows leave it and at a quarter of that, since the newest are not older.
// Then the level need not agree, which the noise of what comes and goes may hide.
func (v *series) keepsMore(from, to int, p *part) bool {
	young := float64(v.record.Young)
	if v.horizon > 1 {
		young *= ledger.HorizonStep
	}
	return v.remembers && p.seen >= manySurvived && p.bytes/float64(to-from) >= 2*max(float64(v.record.Kept), young)
}
