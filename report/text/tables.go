// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func title(p *page, s *ledger.Snapshot, n *notes) {
	var ended, replaced uint64
	last := map[uint32]int{} // one pid has several programs, one after the other
	for i := range s.Processes {
		last[s.Processes[i].PID] = i
	}
	for i := range s.Processes {
		switch p := &s.Processes[i]; {
		case p.Replaced && last[p.PID] != i:
			replaced++
		case p.End != 0:
			ended++
		}
	}
	who := format.Count(uint64(len(s.Processes))-replaced, "process")
	var notes []string
	if ended > 0 {
		notes = append(notes, fmt.Sprintf("%d ended", ended))
	}
	if replaced > 0 {
		notes = append(notes, format.Count(replaced, "program")+" before an exec")
	}
	if len(notes) > 0 {
		who += " (" + strings.Join(notes, ", ") + ")"
	}
	if s.Host != "" {
		who += " on " + untrusted.Clean(s.Host)
	}
	p.list(plain, 0, " ", who+",", "traced "+format.Span(s.End-s.Begin), format.Join("until", s.Wall.UTC().Format("2006-01-02 15:04:05 UTC"), n.mark(report.AtTitle)))
}

// headLine writes a figure and its line of code, on a second line if there is no room beside the
// figure.
func (p *page) headLine(s Style, figure string, f callstack.Frame) {
	if room := p.width - format.Width(figure) - 2; room >= narrowFrame {
		p.line(s, 0, figure+"  "+frames.Text(&f, room))
		return
	}
	if format.Width(figure) <= p.width {
		p.line(s, 0, strings.TrimRight(figure, " "))
	} else {
		p.text(s, 0, figure)
	}
	p.line(s, siteIndent, frames.Text(&f, p.width-siteIndent))
}

// siteHead writes a row's line, and below it what tells its stacks apart and whose the memory is.
func siteHead(p *page, rank int, r *lines.Row) {
	x := &r.Site
	size := format.Bytes(report.Awake(x))
	if x.LiveBytes == 0 {
		size = "unknown"
	}
	p.headLine(bold, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(size, 8), r.Frame)
	p.list(dim, siteIndent, ", ", aboutRow(r)...)
}

// callsText returns "in GELU.forward, Linear.forward", "" of none.
func callsText(list []apart.Call) string {
	if text := apart.CallsText(list); text != "" {
		return "in " + text
	}
	return ""
}

// moduleText returns "of model.blocks.*.mlp", "" of none.
func moduleText(module string) string {
	if module == "" {
		return ""
	}
	return "of " + module
}

// leastAbout is the least room for what tells the stacks of a line apart.
const leastAbout = 12

// withAbout adds texts about a row to its line, as far as there is room.
func (p *page) withAbout(line string, about ...string) string {
	for _, text := range about {
		if room := p.width - format.Width(line) - 2; room >= leastAbout && text != "" {
			line += ", " + format.Cut(text, room)
		}
	}
	return line
}

// aboutRow returns "in GELU.forward, Linear.forward" and "of model.blocks.*.mlp".
func aboutRow(r *lines.Row) (list []string) {
	if text := callsText(r.Calls); text != "" {
		list = append(list, text)
	}
	if text := moduleText(r.Module); text != "" {
		list = append(list, text)
	}
	return list
}

const (
	figureColumns = 10
	deviceColumns = 16
)

// table writes rows. The first cell takes the remaining width, the second is text, the rest are
// figures. A row of one cell belongs to the last figure of the row before. If columns do not fit,
// each row becomes a list.
func (p *page) table(rows [][]string) {
	if p.room(len(rows[0])-2) < leastFirst {
		p.rowLists(rows)
		return
	}
	first := p.firstColumn(len(rows[0]) - 2)
	for i, row := range rows {
		if len(row) == 1 {
			p.line(dim, 0, format.Pad(row[0], -p.width))
			continue
		}
		line := format.Pad(format.Cut(row[0], first), first) + " " + format.Pad(format.Cut(row[1], deviceColumns-1), deviceColumns)
		for _, cell := range row[2:] {
			line += format.Pad(cell, -figureColumns)
		}
		s := plain
		if i == 0 {
			s = dim
		}
		p.line(s, 0, strings.TrimRight(line, " "))
	}
}

// rowLists writes "python3 [42] cuda:0" and below it "live 3.00 GiB, count 12, peak 4.00 GiB, at
// 9.0s".
func (p *page) rowLists(rows [][]string) {
	for _, row := range rows[1:] {
		if len(row) == 1 {
			p.text(dim, 2, row[0])
			continue
		}
		indent := 0
		if row[0] == "" {
			indent = 2
		}
		p.text(plain, indent, format.Join(row[0], strings.TrimSpace(row[1])))
		var list []string
		for i, cell := range row[2:] {
			if cell != "" {
				list = append(list, format.Join(rows[0][2+i], cell))
			}
		}
		p.list(dim, indent+2, ", ", list...)
	}
}

const leastFirst = 8 // columns

func (p *page) room(figures int) int { return p.width - deviceColumns - figures*figureColumns - 1 }

// firstColumn returns the width of the first cell of rows with this many figures.
func (p *page) firstColumn(figures int) int { return max(p.room(figures), leastFirst) }

// ownerName returns a process in at most room columns, with its rank if all of it fits.
func ownerName(s *ledger.Snapshot, process, room int) string {
	p := &s.Processes[process]
	name := format.Process(p)
	switch {
	case p.Replaced:
		name += " exec"
	case p.End != 0:
		name += " ended"
	}
	if rank := format.Digits(p.Rank); rank != "" && format.Width(name+" rank "+rank) <= room {
		name += " rank " + rank
	}
	return name
}
