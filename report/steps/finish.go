// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"
)

// finish returns the steps of a process, by the best evidence; false without any.
func (t *track) finish(all bool) (Steps, bool) {
	if t.run == nil || t.full {
		return Steps{}, false
	}
	t.run.To = t.to + 1
	for _, x := range t.all() {
		x.add(t.run)
	}
	if t.grads.inPass {
		t.passEnded()
	}
	if t.burst.open {
		t.burstEnded()
	}
	if t.grads.cleared {
		t.zeros.close(len(t.zeros.open))
	}
	if t.burst.whole && t.burst.next == 0 {
		t.cycles.close(t.cycles.at)
	}
	x, by := t.choose()
	if x == nil {
		return Steps{}, false
	}
	s := Steps{PID: t.pid, From: t.from, To: t.to, Devices: t.devices, By: by, Count: x.count, Partial: x.partial, Paused: t.paused, List: x.steps}
	s.Passes, _ = x.usual()
	s.perFound = x.mean()
	if by == Optimizer && !all {
		s.Unseen, s.Missing = x.unseen, t.burst.sample.beyond(x.unseen)
	}
	s.regular = x.isRegular()
	switch {
	case by == Period:
		s.Sure = Guess
	case by == Optimizer && (s.regular && s.Unseen == 0 && s.Missing == 0 || all):
		s.Sure = Certain
	default:
		s.Sure = Likely
	}
	s.details = append(x.details, x.highest)
	if d := x.divide(x.open, x.count+1); len(d.Lead)+len(d.Runs) > 0 {
		d.Open = true
		s.Open = len(d.Runs) > 0
		s.details = append(s.details, d)
	}
	s.Each = s.middle()
	return s, true
}

// choose returns the steps by the best evidence that fits the backward passes; nil without any.
func (t *track) choose() (*segmenter, By) {
	optimizer := &t.bursts
	if b := &t.burst; b.whole && !b.broken && len(b.seen) > 1 && t.cycles.count > 1 {
		optimizer = &t.cycles
	}
	// Some optimizers allocate in their first step only.
	found := optimizer.count > 0 && optimizer.covers(t.from, t.to) && !(t.closures && optimizer.count == 1)
	zeros := !t.closures && t.zeros.count > 1 && t.zeros.covers(t.from, t.to) && t.zeros.isRegular()
	switch {
	case found && (optimizer.isRegular() || !zeros || t.zeros.count <= optimizer.count):
		return optimizer, Optimizer
	case zeros:
		return &t.zeros, ZeroGrad
	case !found && !t.closures && t.periods.count > 2 && 5*t.periods.falls >= 4*t.periods.count:
		return &t.periods, Period
	}
	return nil, 0
}

// usual returns how many backward passes most steps have, and how many steps have as many.
func (x *segmenter) usual() (passes int, steps uint64) {
	for n, count := range x.by {
		if count > steps || count == steps && n < passes {
			passes, steps = n, count
		}
	}
	return passes, steps
}

// mean returns how many backward passes steps have on average.
func (x *segmenter) mean() float64 {
	var sum float64
	for n, count := range x.by {
		sum += float64(n) * float64(count)
	}
	return sum / float64(max(x.count, 1))
}

// isRegular reports whether nearly all steps have as many backward passes.
func (x *segmenter) isRegular() bool {
	_, n := x.usual()
	return x.count > 0 && 10*n+10 >= 9*x.count // the first and the last of an epoch may have fewer
}

// covers reports whether there are no more backward passes after the last step than two steps have.
// Stacks without native frames show no backward passes: then there are a few steps, to beyond the
// middle of the time from begin to end.
func (x *segmenter) covers(begin, end uint64) bool {
	most := 0
	for n := range x.by {
		most = max(most, n)
	}
	if most == 0 && x.passes == 0 && len(x.steps) > 0 {
		return x.count >= fewSteps && x.steps[len(x.steps)-1].To-begin >= (end-begin)/2
	}
	return x.passes <= 2*most
}

const fewSteps = 3

// middle returns the time of a step in the middle of all.
func (s *Steps) middle() uint64 {
	times := make([]uint64, 0, len(s.List))
	for i := range s.List {
		if x := &s.List[i]; x.Count > 0 && x.To > x.From {
			times = append(times, (x.To-x.From)/x.Count)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}
