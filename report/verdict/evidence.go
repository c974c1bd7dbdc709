// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const mib = 1 << 20

// evidence returns in one line what the verdict is based on.
func (j *judge) evidence(x *ledger.Site, v *series, r *run, class Class) string {
	var list []string
	if r.why != "" {
		list = append(list, r.why)
	}
	if needs := math.Ceil(r.needs); class == Growing && needs > 0 && !v.life.ended {
		list = append(list, "needs "+format.Span(uint64(needs*1e9))+" more to decide")
	}
	if class >= Growing && r.rate.Value > 0 {
		list = append(list, rateText(r.rate, v.ns(v.width(r.from, r.to))))
	}
	if v.torn {
		list = append(list, "freed when the process ended")
	}
	all := v.sum(0, len(v.w))
	if all.seen > 0 {
		age := v.life.end - min(v.life.end, v.start+v.ns(float64(all.first)))
		if x.Oldest > j.s.Begin {
			age = v.life.end - min(v.life.end, x.Oldest-j.s.Begin)
		}
		list = append(list, fmt.Sprintf("%s in %d of %d windows, up to %s old", format.Count(uint64(all.seen), "survivor"), int(all.windows), len(v.w), format.Span(age)))
	}
	allocated, high := 0.0, 0
	for i := range v.w {
		w := &v.w[i]
		allocated += float64(w.AllocBytes)
		if w.High > 0 && w.High >= x.Peak/2 {
			high++
		}
	}
	if r.floor {
		list = append(list, fmt.Sprintf("never below what it had before in %d of %d windows", r.hits, r.to-r.from-1))
	}
	if allocated > 0 && !v.torn {
		list = append(list, percent(all.bytes/allocated)+" of allocated bytes never freed")
	}
	if high > 0 {
		list = append(list, format.Count(uint64(high), "high-water mark"))
	}
	if class == OneOff {
		last := v.lastAlloc()
		list = append(list, "none allocated for "+format.Span(v.ns(v.width(last+1, len(v.w)))))
	}
	return strings.Join(list, ", ")
}

// leastRated is the shortest growth whose rate is a figure for a minute, ns.
const leastRated = 1e9

// rateText returns "+12.3 MiB/min over 11s (11.9 to 12.7 MiB/min)" for a growth of so many ns,
// without the range where that has one figure, and "+62.4 MiB over 134ms" for a short growth.
func rateText(r Rate, ns uint64) string {
	if ns < leastRated {
		return "+" + format.Bytes(uint64(r.Value*float64(ns)/1e9)) + " over " + format.Span(ns)
	}
	perMinute := func(x float64) string { return format.Number(x * 60 / mib) }
	text := "+" + perMinute(r.Value) + " MiB/min over " + format.Span(ns)
	if low, high := perMinute(r.Low), perMinute(r.High); !math.IsInf(r.High, 0) && low != high {
		text += " (" + low + " to " + high + " MiB/min)"
	}
	return text
}

func percent(x float64) string {
	switch {
	case x == 0:
		return "0%"
	case x < 0.001:
		return "less than 0.1%"
	case x < 0.1 || x > 0.9 && x < 1:
		return fmt.Sprintf("%.1f%%", min(100*x, 99.9))
	}
	return fmt.Sprintf("%.0f%%", 100*x)
}

// tooFew returns why a site cannot be called harmless: the limit on stacks left so few of its
// survivors in the sample that they tell neither growth nor its absence. Without old survivors it
// is no question.
func (j *judge) tooFew(x *ledger.Site, v *series) string {
	old, all := v.sum(0, v.old()), v.sum(0, len(v.w))
	if x.Kind != ledger.Tensor || old.seen == 0 || all.seen >= minSurvivors || float64(x.LiveObjects) < 4*all.seen || !j.thinned[processDevice{x.Process, x.Device}] {
		return ""
	}
	return "cannot tell: only " + format.Count(uint64(all.seen), "survivor") + " in the sample (--sample 0 takes all)"
}
