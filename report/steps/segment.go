// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report/purpose/phase"
)

// segmenter divides the runs of a process into steps, by one kind of evidence.
type segmenter struct {
	points  []uint64
	lines   *lines
	kept    *int   // runs of details of all processes
	open    []*Run // of the step under way
	passes  int    // its backward passes
	marked  bool
	at      int    // where it may have ended: an index into open
	before  int    // its backward passes until then
	done    uint64 // when its optimizer was done; 0: unknown
	ends    []end  // where else it may have ended, if no sampled tensor showed its optimizer
	unseen  uint64 // steps of which none did
	steps   []Step
	room    int    // of steps
	stride  uint64 // steps of a record
	count   uint64
	partial bool
	falls   uint64         // steps after which less is left than they had
	by      map[int]uint64 // steps by their backward passes
	details []Detail
	highest Detail // the one that had most, with what came before it
	most    uint64
}

// unshare lets a segmenter change without the one that it is a copy of.
func (x *segmenter) unshare() {
	kept := *x.kept
	x.kept, x.open, x.steps, x.by, x.details = &kept, slices.Clone(x.open), slices.Clone(x.steps), maps.Clone(x.by), slices.Clone(x.details)
	x.ends = slices.Clone(x.ends)
}

// add adds a run that has ended.
func (x *segmenter) add(r *Run) {
	if len(x.open) < maxRuns {
		x.open = append(x.open, r)
		return
	}
	last := *x.open[maxRuns-1]
	last.To = r.To
	last.Levels = slices.Clone(last.Levels)
	for k := range r.Levels {
		if k >= len(last.Levels) {
			last.Levels = append(last.Levels, r.Levels[k])
			continue
		}
		a, b := &last.Levels[k], &r.Levels[k]
		a.Last = b.Last
		if b.High > a.High {
			a.High, a.HighTime, last.Phase, last.context = b.High, b.HighTime, r.Phase, r.context
		}
	}
	x.open[maxRuns-1] = &last
}

// mark notes that the step may have ended here, which is known later.
func (x *segmenter) mark() { x.marked, x.at, x.before = true, len(x.open), x.passes }

// unmark notes that it did not.
func (x *segmenter) unmark() { x.marked = false }

// close ends the step under way before the run open[n]. The backward passes after a mark are of
// the next.
func (x *segmenter) close(n int) {
	passes, rest := x.passes, 0
	if x.marked && n == x.at {
		passes, rest = x.before, x.passes-x.before
	}
	n = min(n, len(x.open))
	d := x.divide(x.open[:n], x.count+1)
	x.open = slices.Clone(x.open[n:])
	x.passes, x.marked, x.ends = rest, false, x.ends[:0]
	if len(d.Runs) == 0 {
		return
	}
	x.count++
	if x.by == nil {
		x.by = map[int]uint64{}
	}
	x.by[min(passes, maxPasses)]++
	if first := d.Runs[0].Phase; x.count == 1 && (first == phase.Backward || first == phase.Step) {
		x.partial = true
	}
	s := record(d.Runs, x.count)
	if s.Done = s.To; x.done > 0 {
		s.Done = min(max(x.done, s.From), s.To)
	}
	x.done = 0
	x.keep(s)
	x.detail(d, s)
}

const maxPasses = 1 << 12 // of a step that are told apart

// divide separates what ran before a step, such as an evaluation, from the step.
func (x *segmenter) divide(runs []*Run, number uint64) Detail {
	runs = x.evaluations(runs)
	lead := 0
	for i, r := range runs {
		if r.Phase == phase.Setup || r.Phase == phase.Evaluation && !x.lines.isUsual(r.context) {
			lead = i + 1
		} else if r.Phase > phase.Data {
			break
		}
	}
	d := Detail{Number: number, Lead: runs[:lead], Runs: runs[lead:]}
	if !slices.ContainsFunc(d.Runs, func(r *Run) bool { return r.Phase > phase.Data && r.Phase != phase.Evaluation }) {
		d.Lead, d.Runs = runs, nil
	}
	return d
}

// evaluations returns runs, with forward passes without gradients as evaluations.
func (x *segmenter) evaluations(runs []*Run) []*Run {
	list, after := slices.Clone(runs), false
	for i, r := range runs {
		if x.lines.withoutGradients(r, after) {
			same := *r
			same.Phase = phase.Evaluation
			list[i], after = &same, true
		} else if r.Phase > phase.Data {
			after = r.Phase == phase.Evaluation
		}
	}
	return list
}

// record sums a step.
func record(runs []*Run, number uint64) Step {
	s := Step{Number: number, Count: 1, From: runs[0].From, To: runs[len(runs)-1].To}
	for _, r := range runs {
		for k := range r.Levels {
			l := &r.Levels[k]
			for len(s.High) <= k {
				s.High, s.HighTime, s.End = append(s.High, 0), append(s.HighTime, 0), append(s.End, 0)
			}
			if l.High > s.High[k] {
				s.High[k], s.HighTime[k] = l.High, l.HighTime
			}
			s.End[k] = l.Last
		}
	}
	return s
}

// keep adds a record, and joins neighbors where there are too many.
func (x *segmenter) keep(s Step) {
	if slices.ContainsFunc(s.High, func(v uint64) bool { return v > 0 }) && fell(&s) {
		x.falls++
	}
	if n := len(x.steps); n > 0 && x.steps[n-1].Count < x.stride {
		x.steps[n-1].join(&s)
		return
	}
	x.steps = append(x.steps, s)
	if len(x.steps) < x.room {
		return
	}
	kept := x.steps[:0]
	for i := 0; i+1 < len(x.steps); i += 2 {
		a := x.steps[i]
		a.join(&x.steps[i+1])
		kept = append(kept, a)
	}
	clear(x.steps[len(kept):])
	x.steps, x.stride = kept, 2*x.stride
}

func fell(s *Step) bool {
	for k := range s.High {
		if s.End[k] < s.High[k] {
			return true
		}
	}
	return false
}

// join adds a step that follows.
func (s *Step) join(next *Step) {
	s.Count, s.To, s.Done = s.Count+next.Count, next.To, next.Done
	s.High, s.End, s.HighTime = slices.Clone(s.High), slices.Clone(s.End), slices.Clone(s.HighTime) // a reader may have them
	for k := range next.High {
		if k >= len(s.High) {
			s.High, s.HighTime, s.End = append(s.High, next.High[k]), append(s.HighTime, next.HighTime[k]), append(s.End, next.End[k])
			continue
		}
		if s.End[k] = next.End[k]; next.High[k] > s.High[k] {
			s.High[k], s.HighTime[k] = next.High[k], next.HighTime[k]
		}
	}
}

// detail keeps the runs of a step with a point, and of the one with most in it or before it.
func (x *segmenter) detail(d Detail, s Step) {
	from := s.From
	if len(d.Lead) > 0 {
		from = d.Lead[0].From
	}
	i, _ := slices.BinarySearch(x.points, from)
	if n := len(d.Lead) + len(d.Runs); i < len(x.points) && x.points[i] < s.To && *x.kept+n <= maxKept && len(x.details) < maxDetails-2 {
		*x.kept += n
		x.details = append(x.details, d)
	}
	most := slices.Max(append([]uint64{0}, s.High...))
	for _, r := range d.Lead {
		for k := range r.Levels {
			most = max(most, r.Levels[k].High)
		}
	}
	if most > x.most {
		x.most, x.highest = most, d
	}
}
