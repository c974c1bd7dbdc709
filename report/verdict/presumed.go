// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// While a budget pauses tracing, blocks of tensors lose their stacks, and a line that leaks shows
// no survivors. What remains is an estimate: what a line kept in the times in which it was traced
// (Site.Presumed), and how much all tensors grew, which is exact (Phase.Floor). A queue, too, keeps
// what is then freed in a pause. So a line leaks if it kept something again and again, if the total
// grows, and if other lines do not explain that growth.

const (
	// tooMuch is how many times the growth of the total lines may have kept, by the estimate.
	tooMuch = 1.5
	// explained is the share of the growth of the total that lines which keep more explain, so that
	// a line that keeps less need not grow.
	explained = 0.75
	// needed is the same for all other lines, where lines kept more than the total grew by.
	needed = 0.6
	// rare is the share of a line's blocks below which what seems to live may be steps that a busy
	// machine has interrupted: 0.3 to 0.6 % of the gradients of 12 trainings on 2 processors did.
	rare = 0.01
)

// estimate is what is known of all tensors of an allocator that was not traced all the time.
type estimate struct {
	phases []ledger.Phase
	grown  Rate // bytes per second, of all its tensors
	sites  []*ledger.Site
}

// presumed judges what a line is presumed to keep. ok is false if that does not grow.
func (j *judge) presumed(x *ledger.Site) (v series, r run, class Class, ok bool) {
	e := j.estimateOn(x.Process, x.Device)
	if e == nil {
		return v, r, class, false
	}
	if v, r, class, ok = e.grows(x.Presumed, j.lives[x.Process]); !ok || class < Leaking {
		return v, r, class, ok
	}
	from := v.start + v.ns(float64(r.from))
	own, all, larger := e.kept(x.Presumed, from), 0.0, 0.0
	for _, y := range e.sites {
		rate := e.kept(y.Presumed, from)
		if rate > tooMuch*e.grown.High { // it does not grow
			continue
		}
		if all += rate; rate > own {
			larger += rate
		}
	}
	switch {
	case keeps(x.Presumed) < rare:
		r.why = "less than 1% of what it allocated, as if steps had been interrupted"
	case e.grown.Low <= 0:
		r.why = "the total of all tensors may not grow"
	case r.rate.Value > tooMuch*e.grown.High:
		r.why = "faster than all tensors together, so that some of it was freed while it was not traced"
	case all > tooMuch*e.grown.High && all-own > needed*e.grown.Value:
		r.why = "other lines kept as much, and all tensors grow by less"
	case larger > explained*e.grown.Value:
		r.why = othersExplain
	default:
		return v, r, Leaking, true
	}
	r.needs = float64(v.life.end-v.life.begin) / 1e9
	return v, r, Growing, true
}

// estimateOn returns the estimate for an allocator; nil if it was traced all the time.
func (j *judge) estimateOn(process int, device int32) *estimate {
	key := processDevice{process, device}
	if e, known := j.estimates[key]; known {
		return e
	}
	var e *estimate
	if t := j.s.TensorsOn(process, device); t != nil && len(t.Phases) > 0 {
		e = &estimate{phases: t.Phases, grown: floorsRise(t.Phases)}
		for i := range j.s.Sites {
			if y := &j.s.Sites[i]; y.Process == process && y.Device == device && y.Kind == ledger.Tensor && y.Presumed != nil {
				e.sites = append(e.sites, y)
			}
		}
	}
	j.estimates[key] = e
	return e
}

// explain lowers estimates of lines that need not grow, since lines which keep more explain the
// growth of the total. presumed compares sites, and a graph that leaks is of many sites, each of
// which keeps less than a queue.
func (j *judge) explain(list []Group, verdicts []Verdict) {
	var lowered []int
	for i := range list {
		g := &list[i]
		if g.Class != Leaking || !g.presumed {
			continue
		}
		larger := 0.0
		for k := range list {
			if h := &list[k]; h.Process == g.Process && h.Device == g.Device && h.presumed && h.Class == Leaking && h.Rate.Value > g.Rate.Value {
				larger += h.Rate.Value
			}
		}
		if larger > explained*j.estimateOn(g.Process, g.Device).grown.Value {
			lowered = append(lowered, i)
		}
	}
	for _, i := range lowered {
		g := &list[i]
		g.lower()
		for _, n := range g.Sites {
			if v := &verdicts[n]; v.Class == Leaking && v.presumed {
				v.lower()
			}
		}
	}
}

const othersExplain = "other lines explain the growth of all tensors"

// lower makes a verdict Growing whose growth others explain.
func (v *Verdict) lower() {
	v.Class, v.UntilFull, v.Evidence = Growing, 0, othersExplain+", "+v.Evidence
}

// Estimated reports whether a verdict is an estimate of what a line keeps, as its tensors were not
// traced all the time.
func (v *Verdict) Estimated() bool { return v.presumed }

// kept returns what is presumed to live of the allocations since a time, in bytes per second that
// was traced; 0 if it is of few windows.
func (e *estimate) kept(x *ledger.Site, from uint64) float64 {
	bytes, windows := 0.0, 0
	for i := range x.Cohorts {
		w, begin := &x.Cohorts[i], x.FirstWindow+uint64(i)*x.Window
		if end := begin + x.Window; end > from && w.Seen > 0 {
			bytes += float64(w.LiveBytes) * float64(end-max(begin, from)) / float64(x.Window)
			windows++
		}
	}
	traced := tracedIn(e.phases, from, math.MaxUint64)
	if traced == 0 || windows < fewWindows {
		return 0
	}
	return bytes / traced * 1e9
}

// keeps returns the share of the objects of a site that live.
func keeps(x *ledger.Site) float64 {
	live, all := uint64(0), uint64(0)
	for i := range x.Cohorts {
		live, all = live+x.Cohorts[i].LiveObjects, all+x.Cohorts[i].AllocObjects
	}
	return float64(live) / float64(max(all, 1))
}

// rises reports whether all tensors grow by half of what a run does, whatever lines have lost.
func (e *estimate) rises(r *run) bool {
	return e != nil && e.grown.Low > 0 && e.grown.High >= r.rate.Value/2
}

// grows judges what is presumed to live by its survivors.
func (e *estimate) grows(x *ledger.Site, l life) (v series, r run, class Class, ok bool) {
	if x == nil {
		return v, r, 0, false
	}
	v = e.seriesOf(x, l)
	r, ok, _ = v.bySurvivors()
	switch {
	case !ok:
	case r.why != "":
		class = Growing
	default:
		class = v.longEnough(&r)
	}
	return v, r, class, ok && class >= Growing
}

// seriesOf returns the series of a site, with how much of it was traced.
func (e *estimate) seriesOf(x *ledger.Site, l life) series {
	v := newSeries(x, l)
	v.watched = make([]float64, len(v.w))
	for i := range v.watched {
		from := v.start + v.ns(float64(i))
		v.watched[i] = tracedIn(e.phases, from, from+v.ns(1)) / (v.window * 1e9)
	}
	return v
}

// tracedIn returns how many ns of a time were traced.
func tracedIn(phases []ledger.Phase, from, to uint64) (ns float64) {
	for _, p := range phases {
		if a, b := max(p.From, from), min(p.To, to); a < b {
			ns += float64(p.Traced) * float64(b-a) / float64(p.To-p.From)
		}
	}
	return ns
}

// mostFloors is how many floors show whether tensors grow: as many as a site has windows.
const mostFloors = ledger.CohortLen

// floorsRise returns by how much the least that was allocated in phases rises, in bytes per second.
func floorsRise(phases []ledger.Phase) Rate {
	var at, floor []float64
	for _, p := range phases {
		if p.Floor == math.MaxUint64 {
			continue
		}
		at, floor = append(at, float64(p.From+p.To)/2e9), append(floor, float64(p.Floor))
	}
	if group := (len(at) + mostFloors - 1) / mostFloors; group > 1 {
		n := 0
		for i := 0; i < len(at); i += group {
			end := min(i+group, len(at))
			at[n], floor[n] = mean(at[i:end]).Value, slices.Min(floor[i:end])
			n++
		}
		at, floor = at[:n], floor[:n]
	}
	return theilSenAt(at, floor)
}
