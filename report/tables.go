// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// words joins what is not empty.
func words(parts ...string) string {
	var kept []string
	for _, s := range parts {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, " ")
}

func title(p *page, s *ledger.Snapshot, n *notes) {
	var ended uint64
	for i := range s.Processes {
		if s.Processes[i].End != 0 {
			ended++
		}
	}
	who := counted(uint64(len(s.Processes)), "process")
	if ended > 0 {
		who += fmt.Sprintf(" (%d ended)", ended)
	}
	if s.Host != "" {
		who += " on " + symbolize.Clean(s.Host)
	}
	p.list(plain, 0, " ", who+",", "traced "+span(s.End-s.Begin), words("until", s.Wall.UTC().Format("2006-01-02 15:04:05 UTC"), n.mark(atTitle)))
}

// headLine writes a figure and the line of code that it belongs to.
func (p *page) headLine(s style, figure string, f symbolize.Frame) {
	p.line(s, 0, figure+"  "+frameText(&f, p.width-columns(figure)-2))
}

func siteHead(p *page, rank int, x *ledger.Site, f symbolize.Frame) {
	size := BytesText(awake(x))
	if x.LiveBytes == 0 {
		size = "unknown"
	}
	p.headLine(bold, pad(fmt.Sprintf("%d.", rank), siteIndent)+pad(size, 8), f)
}

const (
	figureColumns = 10
	deviceColumns = 16
)

// table writes rows whose first cell takes what the others leave; the second is text, the
// rest figures. A row of one cell belongs to the last figure of the row before.
func (p *page) table(rows [][]string) {
	first := p.firstColumn(len(rows[0]) - 2)
	for i, row := range rows {
		if len(row) == 1 {
			p.line(dim, 0, pad(row[0], -p.width))
			continue
		}
		line := pad(fit(row[0], first), first) + " " + pad(fit(row[1], deviceColumns-1), deviceColumns)
		for _, cell := range row[2:] {
			line += pad(cell, -figureColumns)
		}
		s := plain
		if i == 0 {
			s = dim
		}
		p.line(s, 0, strings.TrimRight(line, " "))
	}
}

// firstColumn is the width of the first cell of rows with so many figures.
func (p *page) firstColumn(figures int) int {
	return max(p.width-deviceColumns-figures*figureColumns-1, 8)
}

// ownerName fits a process into so many columns, with its rank if there is room for all of it.
func ownerName(s *ledger.Snapshot, process, room int) string {
	p := &s.Processes[process]
	name := processName(p)
	if p.End != 0 {
		name += " ended"
	}
	if rank := digits(p.Rank); rank != "" && columns(name+" rank "+rank) <= room {
		name += " rank " + rank
	}
	return name
}

func footnotes(p *page, n *notes) {
	for _, d := range n.doubts { // those whose figure is not in this report
		n.number(d.text)
	}
	if len(n.texts) > 0 {
		p.line(plain, 0, "")
	}
	for i, text := range n.texts {
		p.paragraph(superscript(i+1)+" ", text)
	}
}
