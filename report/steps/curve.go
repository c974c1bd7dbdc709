// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/purpose/phase"
)

// Session is what was found of a session.
type Session struct {
	List    []Steps
	Skipped uint64 // events of a session that has too many to look; 0: it was looked
}

// Of returns the steps of a process that was seen from one time to another, or still runs for 0;
// nil without any. A nil Session has none.
func (s *Session) Of(pid uint32, begin, end uint64) *Steps {
	if s == nil {
		return nil
	}
	for i := range s.List {
		if x := &s.List[i]; x.PID == pid && (end == 0 || x.From <= end) && x.To >= begin {
			return x
		}
	}
	return nil
}

// Most returns the steps of the process that had most; nil without any.
func (s *Session) Most() *Steps {
	var best *Steps
	var most uint64
	for i := range s.List {
		if _, high := s.List[i].high(); best == nil || high > most {
			best, most = &s.List[i], high
		}
	}
	return best
}

// Peak returns where in the steps a device, by its index, had most at a moment that was asked for,
// and how much that was. ok is false without such a moment.
func (s *Steps) Peak(device int) (p Place, bytes uint64, ok bool) {
	for i := range s.details {
		d := &s.details[i]
		for _, r := range slices.Concat(d.Lead, d.Runs) {
			if device < len(r.Levels) && r.Levels[device].High > bytes {
				bytes = r.Levels[device].High
				p, ok = s.At(r.Levels[device].HighTime)
			}
		}
	}
	return p, bytes, ok
}

// Highs returns the most that a device, by its index, had in each step, or in neighbors that were
// joined; the times are the numbers of the steps.
func (s *Steps) Highs(device int) (numbers, bytes []uint64) {
	for i := range s.List {
		x := &s.List[i]
		if device < len(x.High) {
			numbers, bytes = append(numbers, x.Number), append(bytes, x.High[device])
		}
	}
	return numbers, bytes
}

const (
	leastGrowth = 8  // steps, to judge growth
	mostGrowth  = 64 // steps that are compared
)

// Growth returns by how much more a device, by its index, has after each step: the middle of all
// pairs of steps of the last three quarters. It is 0 where a quarter of them or more do not grow.
func (s *Steps) Growth(device int) Rate {
	list := s.List[len(s.List)/4:]
	if len(list) < leastGrowth {
		return Rate{}
	}
	type point struct{ step, bytes float64 }
	var points []point
	for i := range min(len(list), mostGrowth) {
		x := &list[i*(len(list)-1)/(min(len(list), mostGrowth)-1)]
		if device >= len(x.End) {
			return Rate{}
		}
		points = append(points, point{float64(x.Number + x.Count), float64(x.End[device])})
	}
	var slopes []float64
	for i := range points {
		for _, b := range points[i+1:] {
			slopes = append(slopes, (b.bytes-points[i].bytes)/max(b.step-points[i].step, 1))
		}
	}
	slices.Sort(slopes)
	if slopes[len(slopes)/4] <= 0 {
		return Rate{}
	}
	return s.rate(slopes[len(slopes)/2])
}

// period returns the mean time from one step to the next in the last three quarters, in ns; 0 where
// it is unknown.
func (s *Steps) period() float64 {
	list := s.List[len(s.List)/4:]
	if len(list) < leastGrowth {
		return 0
	}
	from, to := list[0].From, list[len(list)-1].To
	var n uint64
	for i := range list {
		n += list[i].Count
	}
	return float64(to-min(from, to)) / float64(max(n, 1))
}

// mostLacking: of so many steps, one may lack where the steps are called exact.
const mostLacking = 50

// isExact reports whether the steps that were found are all steps, up to one in 50, and nothing
// else.
func (s *Steps) isExact() bool {
	return !s.Lossy && (s.Sure == Certain || s.By == ZeroGrad || s.By == Optimizer && s.regular && mostLacking*s.Missing <= s.Count)
}

// Pace returns how many steps a second the last three quarters have; 0 where that is unknown.
func (s *Steps) Pace() float64 {
	if p := s.period(); p > 0 && s.isExact() {
		return 1e9 / p
	}
	return 0
}

// Rate is a growth for each step, in bytes: a range, of equal values where it is known. 0 is no
// growth, or an unknown one.
type Rate struct {
	Low  uint64
	High uint64 // 0 where Low is not: unknown
}

// PerStep returns what a growth of so many bytes a second is for each step.
func (s *Steps) PerStep(rate float64) Rate {
	if !(rate > 0) {
		return Rate{}
	}
	return s.rate(rate * s.period() / 1e9)
}

// rate returns a growth for each step from that for each step that was found. An optimizer's step
// may have been missed, but each has a backward pass. Passes alone may be several of a step.
func (s *Steps) rate(found float64) Rate {
	bytes := uint64(min(found, 1<<62))
	switch {
	case s.Lossy:
		return Rate{}
	case s.isExact() && s.By == Optimizer && s.Sure != Certain:
		return Rate{bytes - bytes/mostLacking, bytes}
	case s.isExact():
		return Rate{bytes, bytes}
	case s.By == Optimizer:
		return Rate{uint64(float64(bytes) / max(s.perFound, 1)), bytes}
	}
	return Rate{bytes, 0}
}

// Part is what one phase of a step had on one device.
type Part struct {
	Phase  phase.Phase
	Time   uint64 // ns
	High   uint64
	Change int64 // bytes that are there after it and were not before
}

// Parts returns the phases of a step on a device, by its index, in the order in which they began.
func (d *Detail) Parts(device int) (list []Part) {
	for _, r := range d.shown() {
		i := slices.IndexFunc(list, func(p Part) bool { return p.Phase == r.Phase })
		if i < 0 {
			i = len(list)
			list = append(list, Part{Phase: r.Phase})
		}
		x := &list[i]
		x.Time += r.To - min(r.From, r.To)
		if device < len(r.Levels) {
			l := &r.Levels[device]
			x.High, x.Change = max(x.High, l.High), x.Change+int64(l.Last)-int64(l.First)
		}
	}
	return list
}

// shown returns the runs of a step, or what is there without one.
func (d *Detail) shown() []*Run {
	if len(d.Runs) == 0 {
		return d.Lead
	}
	return d.Runs
}

// Phases returns the parts of a step that are in one phase each.
func (d *Detail) Phases() (list []Run) {
	for _, r := range d.shown() {
		if n := len(list); n > 0 && list[n-1].Phase == r.Phase {
			list[n-1].To = r.To
			continue
		}
		list = append(list, Run{Phase: r.Phase, From: r.From, To: r.To})
	}
	return list
}

// Between returns what ran before a step as a step.
func (d *Detail) Between() *Detail { return &Detail{Number: d.Number, Open: d.Open, Lead: d.Lead} }

// Span returns when a step began and ended.
func (d *Detail) Span() (from, to uint64) {
	list := d.shown()
	if len(list) == 0 {
		return 0, 0
	}
	return list[0].From, max(list[len(list)-1].To, list[0].From)
}

// Curve returns the levels of a device, by its index, over a step: at rising times, each until the
// next.
func (d *Detail) Curve(device int) []Point {
	var list []Point
	for _, r := range d.shown() {
		if device >= len(r.Levels) {
			continue
		}
		l := &r.Levels[device]
		list = append(list, Point{r.From, l.First})
		list = append(list, l.Points...)
	}
	slices.SortStableFunc(list, func(a, b Point) int { return cmp.Compare(a.Time, b.Time) })
	return list
}

// PhaseAt returns the phase at a moment of a step.
func (d *Detail) PhaseAt(time uint64) phase.Phase {
	if r := runAt(d.shown(), time); r != nil {
		return r.Phase
	}
	return phase.Unknown
}
