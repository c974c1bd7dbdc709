// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// lineColumns are the columns of the view of lines, for what it shows.
func lineColumns(x *scene, tree bool) []column[lineRow] {
	b := x.b
	dropOwn, dropTotal := 0, 8
	if tree {
		dropOwn, dropTotal = 6, 0
	}
	list := []column[lineRow]{
		{name: "own", title: "own", width: 9, drop: dropOwn, text: func(r *lineRow, _ int) string { return ownText(r) }, order: most(func(r *lineRow) int64 { return r.own })},
		{name: "total", title: "total", width: 9, drop: dropTotal, text: func(r *lineRow, _ int) string { return format.SignedBytes(r.total) }, order: most(func(r *lineRow) int64 { return r.total })},
		{name: "count", title: "count", width: 8, drop: 7, text: func(r *lineRow, _ int) string { return countText(r.count) }, order: most(func(r *lineRow) uint64 { return r.count })},
		{name: "growth", title: "growth/min", width: 10, drop: 5, text: func(r *lineRow, _ int) string { return r.growthText(b.half) }, order: most(func(r *lineRow) int64 { return r.growth })},
		{name: "oldest", title: "oldest", width: 7, drop: 9, text: func(r *lineRow, _ int) string { return ageText(r.oldest) }, order: most(func(r *lineRow) uint64 { return r.oldest })},
		{name: "verdict", title: "verdict", width: 9, left: true, drop: 2, text: func(r *lineRow, _ int) string { return classMark(r.class()) }, order: byClass, style: func(r *lineRow) style { return classStyle(r.class()) }},
	}
	if !tree {
		list = append(list, column[lineRow]{name: "plane", title: "plane", width: 11, left: true, drop: 3, text: func(r *lineRow, _ int) string { return planes[r.plane].short },
			order: least(func(r *lineRow) int { return r.plane }), style: func(r *lineRow) style { return planes[r.plane].style }})
		if !x.ofOne() && several(x.inScope()) {
			list = append(list, column[lineRow]{name: "process", title: "process", width: 15, left: true, drop: 4, text: func(r *lineRow, w int) string { return b.whose(r, w) }, order: least(func(r *lineRow) int { return r.process })})
		}
		if len(b.gpus) > 1 {
			list = append(list, column[lineRow]{name: "gpu", title: "GPU", width: b.labelWidth(), left: true, drop: 10, text: func(r *lineRow, _ int) string { return b.gpuLabel(r.gpu) }, order: least(func(r *lineRow) int { return r.gpu })})
		}
	}
	return append(list, column[lineRow]{name: "line", title: "line", width: max(16, min(x.size.width*2/5, 48)), flex: true, left: true, text: func(r *lineRow, w int) string { return b.lineText(r, w) },
		order: func(x, y *lineRow) int { return b.compareFrames(x, y) }, style: func(r *lineRow) style {
			switch f := &b.frames[r.frame]; {
			case r.label != "":
				return bold
			case r.node >= 0 && !f.Mark && !frames.IsUser(f):
				return dim
			}
			return plain
		}})
}

func ownText(r *lineRow) string {
	if r.node >= 0 && r.own == 0 {
		return "·"
	}
	text := format.SignedBytes(r.own)
	if r.incomplete {
		text = "≈" + text
	}
	return text
}

func countText(n uint64) string {
	if n == 0 {
		return ""
	}
	if n >= 10_000_000 {
		return humanize.SIWithDigits(float64(n), 1, "")
	}
	return humanize.Comma(int64(n))
}

// growthText is "" of less than leastSpan/3, in which growth has no meaning.
func (r *lineRow) growthText(half uint64) string {
	if half < leastSpan/3 {
		return ""
	}
	n := report.PerMinute(r.growth, half)
	return changeText(n)
}

func ageText(ns uint64) string {
	if ns == 0 {
		return ""
	}
	return format.Span(ns)
}

func byClass(a, b *lineRow) int {
	return cmp.Or(cmp.Compare(max(b.class(), verdict.Steady), max(a.class(), verdict.Steady)), cmp.Compare(b.growth, a.growth))
}

// whose returns "python3 [42]" or "3 processes".
func (b *books) whose(r *lineRow, width int) string {
	if r.process < 0 || r.processes > 1 {
		return format.Count(uint64(r.processes), "process")
	}
	return processName(b, r.process, width)
}

// processName returns "python3 [42]" in a width: the name is cut, not the pid.
func processName(b *books, i, width int) string {
	p := &b.Snapshot.Processes[i]
	pid := " [" + strconv.FormatUint(uint64(p.PID), 10) + "]"
	name := tidy(p.Comm)
	if name == "" {
		name = "pid"
	}
	return format.Cut(name, max(width-len(pid), 1)) + pid
}

func (b *books) gpuLabel(gpu int) string {
	if gpu < 0 {
		return ""
	}
	return b.gpus[gpu].label
}

func (b *books) lineText(r *lineRow, width int) string {
	if r.node < 0 {
		text := frames.Text(&b.frames[r.frame], width)
		text = withAbout(text, ", in ", width, func() string { return b.callsText(r) })
		return withAbout(text, ", of ", width, func() string { return b.moduleOf(r) })
	}
	sign := "  "
	if r.branches {
		sign = "▸ "
		if r.open {
			sign = "▾ "
		}
	}
	front := indent(min(2*r.depth, width/2)) + sign
	room := max(width-format.Width(front), 1)
	if r.label != "" {
		return front + format.Cut(r.label, room)
	}
	return front + frames.Text(&b.frames[r.frame], room)
}

// leastAbout is the least room for what tells the stacks of a line apart, and for its module.
const leastAbout = 8

// withAbout adds a text to a line, as far as there is room.
func withAbout(line, word string, width int, about func() string) string {
	if room := width - format.Width(line) - len(word); room >= leastAbout {
		if text := about(); text != "" {
			line += word + format.Cut(text, room)
		}
	}
	return line
}

// moduleOf returns the module that most of a row is the parameters, buffers or gradients of, or "";
// of rows of several processes "".
func (b *books) moduleOf(r *lineRow) string {
	if r.process < 0 {
		return ""
	}
	if b.kept == nil {
		b.kept = report.KeptBy(b.high())
	}
	var sites []*ledger.Site
	for _, i := range r.indices() {
		for k := b.lines[i].first; k >= 0; k = b.next[k] {
			if h := &b.holdings[k]; h.Site != nil && h.Mark == "" {
				sites = append(sites, h.Site)
			}
		}
	}
	return tidy(b.kept[r.process].ModuleOf(sites))
}

// callsText returns "GELU.forward, Linear.forward", by which the stacks of a row differ.
func (b *books) callsText(r *lineRow) string {
	var calls apart.Calls
	left := apart.MostStacks
	for _, i := range r.indices() {
		for k := b.lines[i].first; k >= 0 && left > 0; k = b.next[k] {
			if h := &b.holdings[k]; b.paths[k] != nil && h.Mark == "" {
				calls.AddNames(b.paths[k].below, uint64(max(h.Live, 0)))
				left--
			}
		}
	}
	return apart.CallsText(calls.Names())
}

const spaces = "                                                                                                    "

func indent(n int) string { return spaces[:max(0, min(n, len(spaces)))] }

func (b *books) compareFrames(x, y *lineRow) int {
	f, g := &b.frames[x.frame], &b.frames[y.frame]
	return cmp.Or(cmp.Compare(x.label, y.label), cmp.Compare(f.File, g.File), cmp.Compare(f.Line, g.Line), cmp.Compare(f.Function, g.Function))
}
