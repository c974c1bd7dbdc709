// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// comparedColumn is a column of the table.
type comparedColumn struct {
	name   string
	width  int
	figure func(r *compare.Row) string
}

// tableColumns returns the columns that fit beside lines of code: the median and all, or all, or
// the least, the median, the most and the odd ones. It returns nil on a screen that is too narrow.
func (p *comparedPage) tableColumns() []comparedColumn {
	cell := func(name string, figure func(r *compare.Row) string) comparedColumn {
		width := min(max(format.Width(name)+2, leastCell), mostCell)
		return comparedColumn{format.CutFront(name, width-2), width, figure}
	}
	file := func(k int) comparedColumn {
		return cell(p.Names[k], func(r *compare.Row) string { return format.SignedBytes(r.Bytes[k]) })
	}
	difference := cell("difference", func(r *compare.Row) string { return format.Difference(r.Difference) })
	median := cell("median", func(r *compare.Row) string { return format.SignedBytes(r.Median) })
	room := func(list []comparedColumn) int {
		n := p.width - 2
		for i := range list {
			n -= list[i].width
		}
		return n
	}
	all := []comparedColumn{difference}
	for k := range p.Columns {
		all = append(all, file(k))
	}
	switch {
	case len(p.Columns) > 2 && room(all)-leastCell >= usualLine:
		return slices.Insert(all, 1, median)
	case room(all) >= usualLine, len(p.Columns) == 2 && room(all) >= leastLine:
		return all
	}
	some := []comparedColumn{difference, cell("least", func(r *compare.Row) string { return format.SignedBytes(r.Min) }), median,
		cell("most", func(r *compare.Row) string { return format.SignedBytes(r.Max) })}
	if room(some) < usualLine {
		return nil
	}
	for i := range p.Odd {
		if next := file(p.Odd[i].Column); room(append(slices.Clone(some), next)) >= usualLine {
			some = append(some, next)
		}
	}
	return some
}

func (p *comparedPage) table() {
	columns := p.tableColumns()
	row := func(s Style, cell func(x *comparedColumn) string, f *callstack.Frame, calls []apart.Call) {
		line := ""
		for i := range columns {
			line += format.Pad(cell(&columns[i]), -columns[i].width)
		}
		line += "  "
		p.line(s, 0, p.withAbout(line+frames.Text(f, p.width-format.Width(line)), callsText(calls)))
	}
	write := func(s Style, r *compare.Row) {
		if columns == nil {
			p.narrowRow(s, r)
			return
		}
		f := comparedFrame(r)
		row(s, func(x *comparedColumn) string { return x.figure(r) }, &f, r.Calls)
		p.movedLines(r)
	}
	if columns != nil {
		row(dim, func(x *comparedColumn) string { return x.name }, &callstack.Frame{Function: "line", Mark: true}, nil)
	}
	write(bold, &p.Total)
	for i := range p.Rows[:min(len(p.Rows), p.top)] {
		write(plain, &p.Rows[i])
	}
	if rest := p.Rows[min(len(p.Rows), p.top):]; len(rest) > 0 {
		sum := compare.Sum(rest, fmt.Sprintf("%d more (-T shows more)", len(rest)))
		write(dim, &sum)
	}
}

// movedLines writes on which lines the columns have a row, if they differ.
func (p *comparedPage) movedLines(r *compare.Row) {
	if r.Lines == nil {
		return
	}
	var parts []string
	for k, line := range r.Lines {
		if line != 0 {
			parts = append(parts, fmt.Sprintf("line %d in %s", line, p.Names[k]))
		}
	}
	p.list(dim, siteIndent, ", ", parts[:min(len(parts), mostLegend)]...)
}

// narrowRow writes a row as "+4.10 GiB  loader.py:88" and below it "rank 3 5.30 GiB, median …".
func (p *comparedPage) narrowRow(s Style, r *compare.Row) {
	p.headLine(s, format.Difference(r.Difference), comparedFrame(r))
	var parts []string
	switch {
	case len(p.Columns) == 2:
		parts = []string{format.SignedBytes(r.Bytes[0]) + " → " + format.SignedBytes(r.Bytes[1])}
	default:
		parts = []string{format.SignedBytes(r.Min) + " to " + format.SignedBytes(r.Max), "median " + format.SignedBytes(r.Median)}
		for _, k := range r.Odd[:min(len(r.Odd), mostOdd)] {
			parts = append(parts, format.Cut(p.Names[k], p.width/2)+" "+format.SignedBytes(r.Bytes[k]))
		}
	}
	p.list(dim, siteIndent, ", ", parts...)
	p.movedLines(r)
}
