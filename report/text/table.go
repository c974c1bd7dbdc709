// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// incomplete precedes the line of a row that has marks.
const incomplete = "(incomplete) "

// WriteTable writes one row for each line of the user's own code that holds or allocated memory.
func WriteTable(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	viewTitle(p, s, n, o)
	if o.Since != nil {
		changeTable(p, s, st, o, n)
		footnotes(p, n)
		return p.writeTo(w)
	}
	list := report.Rows(s, st)
	p.line(plain, 0, "")
	c := p.tableColumns(s, list, true, 9, 10)
	live, objects, mark := "live", "objects", n.mark(report.AtStacks)
	switch {
	case c.narrow:
	case c.objects:
		objects = format.Join(objects, mark)
	default:
		live = format.Join(live, mark)
	}
	if !c.narrow {
		p.line(dim, 0, c.text([]string{live, "allocated"}, objects, c.processHead(), "plane", "device")+"line")
	}
	for i := range list[:min(len(list), o.Limit())] {
		r := &list[i]
		process, count := &s.Processes[r.Process], humanize.Comma(int64(r.Objects))
		if c.narrow {
			p.headLine(plain, format.SignedBytes(r.Bytes), r.Frame)
			p.list(dim, siteIndent, ", ", callsText(r.Calls), moduleText(r.Module))
			allocated := ""
			if r.AllocBytes > 0 {
				allocated = format.Bytes(r.AllocBytes) + " allocated"
			}
			p.list(dim, siteIndent, ", ", countText(r, mark), allocated, format.Process(process), report.PlaneName(r.Plane), r.Device)
			p.heldShares(r.Kept, o.Limit())
			continue
		}
		text := c.text([]string{format.SignedBytes(r.Bytes), format.Bytes(r.AllocBytes)}, count, c.processCell(process), planeShort(r.Plane), r.Device)
		if r.Incomplete {
			text += incomplete
		}
		p.line(plain, 0, p.withAbout(text+frames.Text(&r.Frame, p.width-format.Width(text)), callsText(r.Calls), moduleText(r.Module)))
		p.heldShares(r.Kept, o.Limit())
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, format.Count(uint64(len(list)-o.Limit()), "more line")+" (-T shows more)")
	}
	footnotes(p, n)
	return p.writeTo(w)
}

// countText returns "3 tensors" with the mark of a doubt; "" for memory that has no count.
func countText(r *report.Row, mark string) string {
	noun := "allocation"
	switch {
	case r.Objects == 0:
		return ""
	case r.Plane == report.PlaneCache:
		noun = "segment"
	case r.Plane == report.PlaneTensor:
		noun = "tensor"
	}
	return format.Join(format.Count(uint64(r.Objects), noun), mark)
}

// changeTable writes one row for each line of the user's own code that holds more or less than
// before.
func changeTable(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options, n *notes) {
	list := report.ChangedRows(s, st, o)
	p.line(plain, 0, "")
	if len(list) == 0 {
		p.text(bold, 0, "Nothing changed")
		return
	}
	rows := make([]report.Row, len(list))
	for i := range list {
		rows[i] = list[i].Row
	}
	c := p.tableColumns(s, rows, false, 10, 10, 10)
	after := format.Join("after", n.mark(report.AtStacks))
	if !c.narrow {
		p.line(dim, 0, c.text([]string{"change", "before", after}, "", c.processHead(), "plane", "device")+"line")
	}
	for i := range list[:min(len(list), o.Limit())] {
		r := &list[i]
		process := &s.Processes[r.Process]
		if c.narrow {
			p.headLine(plain, format.Difference(r.Bytes-r.Before), r.Frame)
			p.list(dim, siteIndent, ", ", format.SignedBytes(r.Before)+" → "+format.SignedBytes(r.Bytes), format.Process(process), report.PlaneName(r.Plane), r.Device)
			continue
		}
		text := c.text([]string{format.Difference(r.Bytes - r.Before), format.SignedBytes(r.Before), format.SignedBytes(r.Bytes)},
			"", c.processCell(process), planeShort(r.Plane), r.Device)
		p.line(plain, 0, text+frames.Text(&r.Frame, p.width-format.Width(text)))
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, format.Count(uint64(len(list)-o.Limit()), "more line")+" (-T shows more)")
	}
}

const (
	leastLine   = 12 // columns of a line of code beside its figures
	usualLine   = 24 // likewise, before columns are left out or shortened
	planeColumn = 12
	deviceCell  = 8
	objectCell  = 11
	mostProcess = 24
)

// tableColumns are the columns of a table of lines of code: figures, a count of objects, process,
// plane and device.
type tableColumns struct {
	figures []int // widths
	objects bool  // there is room for the count
	process int   // width
	pids    bool  // the process is only its pid
	ranks   bool  // the process has its rank
	narrow  bool  // no room for a table: each row takes two lines
}

// tableColumns chooses the columns for the rows of a table. On a narrow screen first the count of
// objects goes, then the names of processes.
func (p *page) tableColumns(s *ledger.Snapshot, rows []report.Row, objects bool, figures ...int) tableColumns {
	c := tableColumns{figures: figures, objects: objects}
	pid := len("pid")
	for i := range rows {
		process := &s.Processes[rows[i].Process]
		c.process = max(c.process, min(format.Width(format.Process(process)), mostProcess), len("process"))
		pid = max(pid, len(strconv.Itoa(int(process.PID))))
	}
	room := p.width - c.width()
	if most := rankColumns(s, rows); most > 0 && room-most >= usualLine {
		c.ranks = true
		c.process += most
		room -= most
	}
	if room < usualLine && c.objects {
		c.objects = false
		room += objectCell
	}
	if room < usualLine {
		c.pids = true
		room += c.process - pid
		c.process = pid
	}
	c.narrow = room < leastLine
	return c
}

// rankColumns returns the columns that the ranks of processes take, 0 without any.
func rankColumns(s *ledger.Snapshot, rows []report.Row) (most int) {
	for i := range rows {
		most = max(most, format.Width(rankText(&s.Processes[rows[i].Process])))
	}
	return min(most, mostProcess)
}

// rankText returns " rank 3", "" without a rank.
func rankText(p *ledger.Process) string {
	if rank := format.Digits(p.Rank); rank != "" {
		return " rank " + rank
	}
	return ""
}

// width returns the columns in front of the line of code.
func (c *tableColumns) width() int {
	n := 2 + c.process + 2 + planeColumn + deviceCell
	for _, w := range c.figures {
		n += w
	}
	if c.objects {
		n += objectCell
	}
	return n
}

// text returns a row up to its line of code.
func (c *tableColumns) text(figures []string, objects, process, plane, device string) string {
	text := ""
	for i, figure := range figures {
		text += format.Pad(figure, -c.figures[i])
	}
	if c.objects {
		text += format.Pad(objects, -objectCell)
	}
	return text + "  " + format.Pad(process, c.process+2) + format.Pad(plane, planeColumn) + format.Pad(device, deviceCell)
}

func (c *tableColumns) processHead() string {
	if c.pids {
		return "pid"
	}
	return "process"
}

func (c *tableColumns) processCell(p *ledger.Process) string {
	if c.pids {
		return strconv.Itoa(int(p.PID))
	}
	if rank := rankText(p); c.ranks {
		return format.Cut(narrowName(p, c.process-format.Width(rank))+rank, c.process)
	}
	return narrowName(p, c.process)
}

// planeShort returns the name of a plane in a narrow column.
func planeShort(plane string) string {
	switch plane {
	case report.PlaneCache, report.PlaneRounding, report.PlaneBefore, report.PlaneUnexplained:
		return plane
	}
	return report.PlaneName(plane)
}
