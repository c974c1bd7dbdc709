// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// judge returns the verdict on a site or a sum of sites; segments: of PyTorch's allocator.
func (j *judge) judge(x *ledger.Site, segments bool) Verdict {
	v := newSeries(x, j.lives[x.Process])
	if len(v.w) == 0 {
		return Verdict{Evidence: "nothing is known of when it was allocated"}
	}
	r, class := v.classify()
	if at := j.lostAt(x); class != Leaking && at > 0 {
		if cut := v.since(at); len(cut.w) > 0 {
			if again, c := cut.classify(); c >= max(class, Growing) {
				v, r, class = cut, again, c
			}
		}
	}
	presumed := false
	if pv, pr, pc, ok := j.presumed(x); ok && class < Leaking && pc > class {
		v, r, class, presumed = pv, pr, pc, true
	} else if why := j.untraced(x); why != "" && (class < Growing || j.paused(x)) {
		return Verdict{Class: Steady, Evidence: why}
	}
	if !segments && !presumed {
		if class == Leaking && r.from > 0 && !v.exceeds(&r, v.before(&r)) {
			class, r.why = Growing, "hardly higher than it was before, and may fall again"
		}
		j.doubt(x, &v, &r, &class)
		j.recently(x, &v, &r, &class)
		if why := j.tooFew(x, &v); why != "" && class < Growing {
			class, r.why = Growing, why
		}
	}
	l := v.life
	out := Verdict{life: l, horizon: v.horizon, presumed: presumed}
	if segments {
		if class == Leaking || class == Growing {
			r.why = "PyTorch's cache grows, its tensors show why"
		} else {
			r.why = "PyTorch's cache"
		}
		r.why += ": " + format.Bytes(min(x.Tensors, x.LiveBytes)) + " of " + format.Bytes(x.LiveBytes) + " given out"
		class = Cache
	}
	out.Class = class
	if class >= Growing {
		out.Rate, out.byLevel = r.rate, r.floor
		out.Over = time.Duration(v.ns(v.width(r.from, r.to)))
		if class == Growing && !l.ended {
			out.Needs = time.Duration(min(r.needs, 1e9) * float64(time.Second)).Round(time.Second)
		}
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
			out.UntilFull = span(room / out.Rate.Value)
		}
	}
	out.Evidence = j.evidence(x, &v, &r, class)
	if presumed {
		out.Evidence += ", estimated from the " + percent(v.traced(0, len(v.w))/v.width(0, len(v.w))) + " of the time in which it was traced"
	}
	return out
}

// Judge judges each site of a snapshot, in the order of s.Sites. Without stacks (nil), Line is the
// called function alone. See JudgeLines for the line.
func Judge(s *ledger.Snapshot, st callstack.Stacks) []Verdict {
	j := newJudge(s, st)
	list, proven := make([]Verdict, len(s.Sites)), objects{}
	for i := range s.Sites {
		x := &s.Sites[i]
		v := j.judge(x, x.Segment && j.reports[x.Process])
		j.hearHolders(x.Process, []int{i}, &v)
		stack := j.stack(x)
		v.Object = proven.find(stack, x.Kind)
		v.headed(stack, frames.Headline(stack))
		list[i] = v
	}
	j.tellApart(list)
	return list
}
