// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// lineGrows reports whether what a line holds may have grown in the later half of its life by half
// of what one of its stacks did. Otherwise the other stacks gave up as much: one bounded cache has
// several callers.
func (j *judge) lineGrows(g *Group, of *Verdict) bool {
	v := j.seriesOf(j.sum(g.Sites), of.horizon)
	return v.mayGrow(len(v.w)/2, of.Rate.Value, of.byLevel)
}

// totalGrows reports the same of all memory of a kind that a process has on a device, during a run
// of one site. The total includes tensors from before the attach.
func (j *judge) totalGrows(x *ledger.Site, of *series, r *run) bool {
	key := totalKey{x.Process, x.Device, x.Kind, of.horizon}
	v, known := j.totals[key]
	if !known {
		v = j.total(key, x.Segment)
		j.totals[key] = v
	}
	begin := of.start + of.ns(float64(r.from))
	from := 0
	for from < len(v.w)/2 && v.start+v.ns(float64(from)) < begin {
		from++
	}
	return v.mayGrow(from, r.rate.Value, r.floor) || of.horizon > 0 && !r.floor && j.varies(x, of, r)
}

// varies reports whether all memory of a kind varied before a run of the recent past by as much as
// the run grew, so that it proves nothing.
func (j *judge) varies(x *ledger.Site, of *series, r *run) bool {
	v := j.seriesOf(j.all(totalKey{x.Process, x.Device, x.Kind, 0}, x.Segment), of.horizon+1)
	begin := of.start + of.ns(float64(r.from))
	least, most := math.Inf(1), 0.0
	for i := range v.w {
		if v.start+v.ns(float64(i+1)) <= begin {
			least, most = min(least, float64(v.w[i].Mean)), max(most, float64(v.w[i].Mean))
		}
	}
	return most-least >= r.rate.Value*of.width(r.from, r.to)*of.window
}

// all returns the sum of all sites of a kind.
func (j *judge) all(key totalKey, segment bool) *ledger.Site {
	var sites []int
	for i := range j.s.Sites {
		if x := &j.s.Sites[i]; x.Process == key.process && x.Device == key.device && x.Kind == key.kind && x.Segment == segment {
			sites = append(sites, i)
		}
	}
	return j.sum(sites)
}

func (j *judge) total(key totalKey, segment bool) series {
	v := j.seriesOf(j.all(key, segment), key.horizon)
	freed, session := j.replaced[processDevice{key.process, key.device}], j.s.End-j.s.Begin
	if key.kind != ledger.Tensor || len(freed) == 0 || session == 0 {
		return v
	}
	v.w = slices.Clone(v.w)
	for i := range v.w { // what was still there of older tensors
		at := float64(v.start+v.ns(float64(i)+0.5)) / float64(session)
		v.w[i].Mean += freed[len(freed)-1] - freed[min(int(at*float64(len(freed))), len(freed)-1)]
	}
	return v
}

// mayGrow compares the means of two halves of the time since a window; of a whole life, at most of
// its later half. It reports whether they differ by half of what a rate makes. Where survivors
// prove the rate, it may also be hidden by the noise of a level that wanders.
func (v *series) mayGrow(from int, rate float64, byLevel bool) bool {
	n := len(v.w)
	if v.horizon == 0 {
		from = max(from, n/2)
	}
	m := v.means(from, n)
	half := len(m) / 2
	if half == 0 {
		return true
	}
	squares := 0.0
	for i := 1; i < len(m); i++ {
		squares += (m[i] - m[i-1]) * (m[i] - m[i-1])
	}
	noise := math.Sqrt(squares / float64(len(m)-1) * float64(half))
	if byLevel {
		noise = 0
	}
	growth := mean(m[len(m)-half:]).Value - mean(m[:half]).Value
	return growth+noise >= rate*v.window*float64(len(m)-half)/2
}

// replaces returns why new tensors may replace those from before the attach, which were freed as
// fast; "" if they were not.
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
	if older == 0 || older < grown/2 {
		return ""
	}
	return "an equal amount from before the attach was freed; this may replace it"
}
