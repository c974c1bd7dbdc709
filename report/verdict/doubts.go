// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// untraced returns why a line of tensors cannot be judged as one that keeps nothing, or not at all:
// its tensors may have lost their stacks while they were not traced.
func (j *judge) untraced(x *ledger.Site) string {
	t := j.s.TensorsOn(x.Process, x.Device)
	if x.Kind != ledger.Tensor || t == nil || t.Untraced == 0 && !t.Open {
		return ""
	}
	return "no verdict: " + format.Bytes(t.Untraced) + " of tensors on " + format.Device(x.Device, ledger.Tensor) + " were not traced"
}

// lostAt returns when tensors of a line last lost their stacks because they were not traced, in ns
// after the session's begin; 0: never. Its live bytes fell then, although they may not have been
// freed.
func (j *judge) lostAt(x *ledger.Site) uint64 {
	if t := j.s.TensorsOn(x.Process, x.Device); x.Kind == ledger.Tensor && t != nil {
		return t.LostAt
	}
	return 0
}

// since returns the series as if tracing had begun at a time, in ns after the session's begin:
// without the windows before it, and the one that it is in.
func (v *series) since(at uint64) series {
	cut := *v
	if at < v.start {
		return cut
	}
	width := uint64(v.ns(1))
	n := min(int((at-v.start)/max(width, 1))+1, len(v.w))
	cut.w, cut.start, cut.peak = slices.Clone(v.w[n:]), v.start+uint64(n)*width, 0
	most := uint64(0)
	for i := range cut.w {
		w := &cut.w[i]
		if w.Floor > most { // the highest level since then
			most, w.High = w.Floor, max(w.High, 1)
		}
		cut.peak = max(cut.peak, float64(w.Mean))
	}
	cut.life.begin = min(max(cut.life.begin, cut.start), cut.life.end)
	if all := float64(cut.life.end - cut.life.begin); all > 0 {
		cut.share = float64(width) / all
	}
	return cut
}

// paused reports whether a line's tensors are not traced now, so that none of them is seen to be
// freed.
func (j *judge) paused(x *ledger.Site) bool {
	t := j.s.TensorsOn(x.Process, x.Device)
	return x.Kind == ledger.Tensor && t != nil && t.Open
}

// doubt changes a leak into growth that others account for.
func (j *judge) doubt(x *ledger.Site, v *series, r *run, class *Class) {
	if *class != Leaking {
		return
	}
	why := j.replaces(x, v, r)
	if why == "" && !j.totalGrows(x, v, r) && !j.estimateOn(x.Process, x.Device).rises(r) {
		why = "other lines gave back as much"
	}
	if why != "" {
		*class, r.why, r.needs = Growing, why, float64(v.life.end-v.life.begin)/1e9
	}
}
