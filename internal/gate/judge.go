// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"path"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// samplingErrors is by how many standard errors a line of sampled tensors must differ.
const samplingErrors = 3

// judge compares the run with the budget and the baseline. A reason for an unknown verdict leaves a
// bad one as it is: what was measured until then is at least as much.
func (r *Result) judge(o Options) {
	now := r.Now
	r.Over = o.Budget > 0 && now.Least > o.Budget
	r.Unsure = o.Budget > 0 && !r.Over && now.Usage > o.Budget
	if r.Before != nil {
		r.compare(o)
	}
	switch {
	case r.Over || r.OverPeak || r.EachLine && r.Grew > 0:
		r.Verdict = Bad
	case len(r.Why) > 0 || r.Unsure:
		r.Verdict = Unknown
	}
}

func (r *Result) compare(o Options) {
	now, before := r.Now, r.Before
	r.Noise = max(now.Noise, before.Noise)
	tolerance := o.Tolerance.of(before.Peak)
	r.Limit = max(tolerance, r.Noise)
	r.OverPeak = now.Peak > before.Peak && now.Peak-before.Peak > r.Limit
	sampling := samplingErrors * max(now.Error, before.Error)
	r.Lines = align(before.Lines, now.Lines)
	for i := range r.Lines {
		c := &r.Lines[i]
		c.Grew = c.Bytes > c.Before && c.Bytes-c.Before > max(tolerance, c.Noise, sampling)
		if c.Grew {
			r.Grew++
		}
	}
	slices.SortStableFunc(r.Lines, func(a, b Change) int {
		return cmp.Or(btoi(b.Grew)-btoi(a.Grew), cmp.Compare(b.growth(), a.growth()), cmp.Compare(b.Bytes, a.Bytes))
	})
}

func (c *Change) growth() int64 { return int64(c.Bytes) - int64(c.Before) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unmatched is added to the number of a line of the baseline whose text no line of the function has
// now.
const unmatched = 1 << 30

// function identifies a function across versions, whose folders differ, as package compare does.
type function struct{ name, file string }

func functionOf(l *Line) function { return function{l.Function, path.Base(l.File)} }

// align puts lines beside each other by function and text. Lines of equal text are taken in their
// order; a line without a text by its number. The rest is package compare's: in a function that has
// as many other lines as before they are taken in order, and otherwise the function is one line.
func align(before, now []Line) (list []Change) {
	renumbered := renumber(before, now)
	columns := []compare.Column{{File: "before", Held: held(renumbered)}, {File: "now", Held: held(now)}}
	noise := map[function]map[int]uint64{}
	for _, lines := range [][]Line{renumbered, now} {
		for i := range lines {
			f := functionOf(&lines[i])
			if noise[f] == nil {
				noise[f] = map[int]uint64{}
			}
			noise[f][lines[i].Line] = max(noise[f][lines[i].Line], lines[i].Noise)
		}
	}
	known := newIndex(before, now, renumbered)
	for _, row := range compare.New(columns).Rows {
		c := Change{Before: uint64(max(row.Bytes[0], 0))}
		c.Line = known.line(&row)
		c.Bytes = uint64(max(row.Bytes[1], 0))
		c.Old = known.old(&row)
		c.Noise = 0
		for line, n := range noise[functionOf(&c.Line)] {
			if row.Frame.Line == line || row.Frame.Line == 0 || slices.Contains(row.Lines, line) {
				c.Noise += n
			}
		}
		list = append(list, c)
	}
	return list
}

// renumber returns the lines of the baseline with the numbers that lines of the same text have now.
func renumber(before, now []Line) []Line {
	type key struct {
		function
		text string
	}
	free := map[key][]int{}
	taken := map[function]map[int]bool{}
	for _, l := range sorted(now) {
		if l.Text != "" {
			k := key{functionOf(&l), l.Text}
			free[k] = append(free[k], l.Line)
		}
		if taken[functionOf(&l)] == nil {
			taken[functionOf(&l)] = map[int]bool{}
		}
		taken[functionOf(&l)][l.Line] = l.Text != ""
	}
	list := sorted(before)
	for i := range list {
		l := &list[i]
		if l.Mark || l.Text == "" {
			continue // without a text, by its number or in its order
		}
		if k := (key{functionOf(l), l.Text}); len(free[k]) > 0 {
			l.Line, free[k] = free[k][0], free[k][1:]
		} else if hasText, ok := taken[functionOf(l)][l.Line]; ok && hasText {
			l.Line += unmatched // another line has its number now
		}
	}
	return list
}

func sorted(list []Line) []Line {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Line) int { return cmp.Compare(a.Line, b.Line) })
	return list
}

func held(list []Line) (of []compare.Held) {
	for i := range list {
		l := &list[i]
		of = append(of, compare.Held{
			Frame: callstack.Frame{Function: l.Function, File: l.File, Line: l.Line, Python: l.Python, Mark: l.Mark},
			Plane: report.PlaneDriver, Bytes: int64(l.Bytes),
		})
	}
	return of
}

// index finds the lines that rows stand for.
type index struct {
	now    map[Line]Line // by function, file and line
	before map[Line]Line // by the same, renumbered
}

func place(l Line) Line { return Line{Function: l.Function, File: path.Base(l.File), Line: l.Line} }

func newIndex(before, now, renumbered []Line) *index {
	x := &index{now: map[Line]Line{}, before: map[Line]Line{}}
	for _, l := range now {
		x.now[place(l)] = l
	}
	for i, l := range sorted(before) {
		x.before[place(renumbered[i])] = l
	}
	return x
}

// line returns the line of a row: as it is now or, if it is gone, as it was.
func (x *index) line(row *compare.Row) Line {
	number := row.Frame.Line
	if row.Lines != nil && row.Lines[1] != 0 {
		number = row.Lines[1]
	}
	f := &row.Frame
	at := Line{Function: f.Function, File: path.Base(f.File), Line: number}
	if f.File == "" {
		at.File = path.Base("")
	}
	if l, ok := x.now[at]; ok {
		return l
	}
	if l, ok := x.before[at]; ok {
		l.Noise = 0
		return l
	}
	return Line{Function: f.Function, File: f.File, Python: f.Python, Mark: f.Mark} // the whole function
}

// old returns the line that a row has in the baseline, 0 if it has none there or the same.
func (x *index) old(row *compare.Row) int {
	number := row.Frame.Line
	if row.Lines != nil {
		number = row.Lines[0]
	}
	l, ok := x.before[Line{Function: row.Frame.Function, File: path.Base(row.Frame.File), Line: number}]
	if now := x.line(row); !ok || now.Line == l.Line || row.Bytes[0] == 0 {
		return 0
	}
	return l.Line
}
