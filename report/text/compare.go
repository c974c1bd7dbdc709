// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	mostOdd     = 5  // odd columns with sentences
	mostOddRows = 3  // lines in the sentences on one column
	mostLegend  = 8  // columns of which each has a line that describes it; of more only odd ones
	mostDoubts  = 4  // sentences about the figures
	leastCell   = 10 // columns of a figure
	mostCell    = 16 // columns of a figure, with the name above it
)

const noneOdd = "None is odd: neither a line of code nor the sum differs much"

// WriteComparison writes which columns are odd, and a table with a row for each line of the user's
// own code: all columns if they fit, else the least, the median, the most and the odd ones.
func WriteComparison(w io.Writer, c *compare.Comparison, o report.Options, screen Screen) error {
	p := comparedPage{newPage(screen), c, o.Limit()}
	p.head()
	p.line(plain, 0, "")
	p.sentences()
	p.line(plain, 0, "")
	p.table()
	p.doubts()
	return p.writeTo(w)
}

type comparedPage struct {
	*page
	*compare.Comparison
	top int
}

// head writes what is compared, and as of when.
func (p *comparedPage) head() {
	first := &p.Columns[0]
	sameFile, sameMoment, sameHost := true, true, true
	for i := range p.Columns {
		x := &p.Columns[i]
		sameFile = sameFile && x.File == first.File
		sameMoment = sameMoment && x.Moment == first.Moment
		sameHost = sameHost && x.Host == first.Host
	}
	text := format.Count(uint64(len(p.Columns)), p.Noun())
	if sameFile {
		text += " of " + untrusted.Clean(first.File)
	}
	if sameHost && first.Host != "" {
		text += " on " + untrusted.Clean(first.Host)
	}
	parts := []string{text}
	if sameMoment && first.Moment != "" {
		parts = append(parts, momentText(first, sameFile))
	}
	p.list(bold, 0, ", ", parts...)
	name := 0
	for _, i := range p.described() {
		name = max(name, min(format.Width(p.Names[i]), p.width/3))
	}
	for _, i := range p.described() {
		text := p.legend(&p.Columns[i], sameFile, sameHost, sameMoment)
		if text == "" || text == p.Names[i] {
			continue
		}
		head := format.CutFront(p.Names[i], name)
		for _, line := range broken(p.width-name-4, " ", format.Words(text)) {
			p.line(dim, 2, format.Pad(head, name)+"  "+line)
			head = ""
		}
	}
}

// described returns the columns that have a legend: all if they are few, else the odd ones.
func (p *comparedPage) described() (list []int) {
	for i := range p.Columns {
		if len(p.Columns) <= mostLegend || slices.ContainsFunc(p.Odd[:min(len(p.Odd), mostOdd)], func(o compare.Odd) bool { return o.Column == i }) {
			list = append(list, i)
		}
	}
	return list
}

// momentText returns "each at its peak", "at the end, after 12m30s".
func momentText(c *compare.Column, same bool) string {
	switch {
	case c.Moment == "peak":
		return "each at its peak"
	case c.Moment == "end" && same:
		return "at the end, after " + format.Span(c.After)
	case c.Moment == "end":
		return "each at its end"
	}
	return "after " + untrusted.Clean(c.Moment)
}

// legend returns what the name of a column does not show: "a.vram, python3 [42], peak at 8.0s".
func (p *comparedPage) legend(c *compare.Column, sameFile, sameHost, sameMoment bool) string {
	var parts []string
	if !sameFile {
		parts = append(parts, untrusted.Clean(c.File))
	}
	switch {
	case c.Process.PID != 0:
		parts = append(parts, format.Process(&c.Process))
		if !p.ByRank {
			parts = append(parts, report.WorkloadText(c.Process.Workload)...)
		}
	case c.All > 1:
		parts = append(parts, format.Count(uint64(c.All), "process"))
	}
	if !sameHost && c.Host != "" {
		parts = append(parts, "on "+untrusted.Clean(c.Host))
	}
	switch {
	case c.Moment == "peak":
		parts = append(parts, "peak at "+format.Span(c.After))
	case c.Moment == "end" && !(sameFile && sameMoment):
		parts = append(parts, "end at "+format.Span(c.After))
	case c.Moment != "" && !sameMoment:
		parts = append(parts, "at "+format.Span(c.After))
	}
	return strings.Join(parts, ", ")
}

// sentences writes which columns are odd.
func (p *comparedPage) sentences() {
	if len(p.Odd) == 0 {
		p.text(bold, 0, noneOdd)
		return
	}
	shown := 0
	for i := range p.Odd {
		if len(p.Columns) == 2 && p.Odd[i].Column == 0 {
			continue
		}
		if shown == mostOdd {
			p.text(dim, 0, format.Count(uint64(len(p.Odd)-shown), "more column")+" unlike the others (--json lists them)")
			return
		}
		shown++
		p.odd(&p.Odd[i])
	}
}

// odd writes "rank 3 has 4.10 GiB more than the median: 12.3 GiB, the median is 8.20 GiB", and
// below it the lines that it has more of.
func (p *comparedPage) odd(o *compare.Odd) {
	name := p.Names[o.Column]
	rows := o.Rows
	if o.InAll {
		p.list(bold, 0, " ", format.Words(fmt.Sprintf("%s has %s than %s: %s, %s", name, moreOrLess(o.Difference), p.other(),
			format.SignedBytes(p.Total.Bytes[o.Column]), p.otherFigure(&p.Total)))...)
	} else {
		p.list(bold, 0, " ", format.Words(fmt.Sprintf("%s has about as much as %s in all, %s, but not in each line:", name, p.other(), format.SignedBytes(p.Total.Bytes[o.Column])))...)
	}
	for at, i := range rows[:min(len(rows), mostOddRows)] {
		r := &p.Rows[i]
		difference := r.Bytes[o.Column] - r.Median
		text := fmt.Sprintf("%s in %s: %s, %s", moreOrLess(difference), comparedName(r, p.width), format.SignedBytes(r.Bytes[o.Column]), p.otherFigure(r))
		if o.InAll && (difference > 0) == (o.Difference > 0) && 200*report.Magnitude(difference) >= report.Magnitude(o.Difference) { // else it rounds to 0%
			text += fmt.Sprintf(" (%.0f%% of the difference)", 100*float64(difference)/float64(o.Difference))
		}
		p.hanging(2, 4, text)
		p.keeper(&o.Keepers[at], r.Bytes[o.Column])
	}
	if more := len(rows) - mostOddRows; more > 0 {
		p.text(dim, 2, "and "+format.Count(uint64(more), "more line"))
	}
}

// keeper writes who keeps what a column has of a row: "1.06 GiB of it is kept by model.losses[*]".
func (p *comparedPage) keeper(k *compare.Keeper, bytes int64) {
	if k.Path == "" {
		return
	}
	part := "all of it"
	if k.Bytes < bytes {
		part = format.SignedBytes(k.Bytes) + " of it"
	}
	for i, piece := range pieces(part+" is kept by "+k.Path, p.width-6) {
		p.line(plain, 4+2*min(i, 1), strings.TrimLeft(piece, " "))
	}
}

// hanging writes text broken between words; lines after the first are indented more.
func (p *comparedPage) hanging(first, rest int, text string) {
	for i, line := range broken(p.width-rest, " ", format.Words(text)) {
		if i == 0 {
			p.line(plain, first, line)
		} else {
			p.line(plain, rest, line)
		}
	}
}

func (p *comparedPage) other() string {
	if len(p.Columns) == 2 {
		return p.Names[0]
	}
	return "the median"
}

func (p *comparedPage) otherFigure(r *compare.Row) string {
	if len(p.Columns) == 2 {
		return p.Names[0] + " has " + format.SignedBytes(r.Median)
	}
	return "the median is " + format.SignedBytes(r.Median)
}

func moreOrLess(n int64) string {
	if n < 0 {
		return format.Bytes(report.Magnitude(n)) + " less"
	}
	return format.Bytes(uint64(n)) + " more"
}

// comparedFrame returns the frame of a row, with the name that reports have for a mark.
func comparedFrame(r *compare.Row) callstack.Frame {
	f := r.Frame
	if f.Mark {
		f.Function = report.MarkName(f.Function)
	}
	return f
}

// comparedName returns the name of a row inside a sentence: "train.py:42 step", "PyTorch cache".
func comparedName(r *compare.Row, width int) string {
	f := comparedFrame(r)
	return frames.Text(&f, max(min(width-8, 60), leastLine))
}

// doubts writes what the columns' ledgers could not account for, equal sentences once.
func (p *comparedPage) doubts() {
	var texts []string
	who := map[string][]string{}
	named := map[int]bool{} // columns with holders in the sentences
	for i := range p.Odd {
		if slices.ContainsFunc(p.Odd[i].Keepers, func(k compare.Keeper) bool { return k.Path != "" }) {
			named[p.Odd[i].Column] = true
		}
	}
	for i := range p.Columns {
		list := p.Columns[i].Doubts
		if named[i] {
			list = slices.Concat(list, p.Columns[i].HolderDoubts)
		}
		if len(named) > 0 { // a reader would ask for those of the other columns
			list = slices.Concat(list, p.Columns[i].NoHolders)
		}
		for _, text := range list {
			text = untrusted.Clean(text)
			if who[text] == nil {
				texts = append(texts, text)
			}
			who[text] = append(who[text], p.Names[i])
		}
	}
	if len(texts) > 0 {
		p.line(plain, 0, "")
	}
	for _, text := range texts[:min(len(texts), mostDoubts)] {
		names := strings.Join(who[text], ", ")
		if len(who[text]) == len(p.Columns) {
			names = "all"
		}
		p.paragraph("- ", format.Cut(names, report.MaxName)+": "+text)
	}
	if more := len(texts) - mostDoubts; more > 0 {
		p.paragraph("- ", format.Count(uint64(more), "further doubt")+" about the figures (--json lists them)")
	}
}
