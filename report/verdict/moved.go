// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// lineGrows reports whether what a line holds may have grown in the later half of its life by half of
// what one of its stacks did. Otherwise the other stacks gave up as much: one bounded cache has
// several callers.
func (j *judge) lineGrows(g *Group, of *Verdict) bool {
	v := newSeries(j.sum(g.Sites), j.lives[g.Process])
	return v.mayGrow(len(v.w)/2, of.Rate.Value, of.byLevel)
}

// totalGrows reports the same of all memory of a kind that a process has on a device, during a run of
// one site. The total includes tensors from before the attach.
func (j *judge) totalGrows(x *ledger.Site, of *series, r *run) bool {
	key := totalKey{x.Process, x.Device, x.Kind}
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
	return v.mayGrow(from, r.rate.Value, r.floor)
}

func (j *judge) total(key totalKey, segment bool) series {
	var sites []int
	for i := range j.s.Sites {
		if x := &j.s.Sites[i]; x.Process == key.process && x.Device == key.device && x.Kind == key.kind && x.Segment == segment {
			sites = append(sites, i)
		}
	}
	v := newSeries(j.sum(sites), j.lives[key.process])
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

// mayGrow compares the means of two halves of the time since a window, at least of the later half of
// all. It reports whether they differ by half of what a rate makes. Where survivors prove the rate, it
// may also be hidden by the noise of a level that wanders.
func (v *series) mayGrow(from int, rate float64, byLevel bool) bool {
	n := len(v.w)
	m := v.means(max(from, n/2), n)
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
