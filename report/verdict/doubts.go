// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// untraced returns why a line of tensors cannot be judged as one that keeps nothing, or not at all: its tensors may
// have lost their stacks while they were not traced.
func (j *judge) untraced(x *ledger.Site) string {
	t := j.s.TensorsOn(x.Process, x.Device)
	if x.Kind != ledger.Tensor || t == nil || t.Untraced == 0 && !t.Open {
		return ""
	}
	return "no verdict: " + format.Bytes(t.Untraced) + " of tensors on " + format.Device(x.Device, ledger.Tensor) + " were not traced"
}

// paused reports whether a line's tensors are not traced now, so that none of them is seen to be freed.
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
	if why == "" && !j.totalGrows(x, v, r) {
		why = "other lines gave back as much"
	}
	if why != "" {
		*class, r.why, r.needs = Growing, why, float64(v.life.end-v.life.begin)/1e9
	}
}
