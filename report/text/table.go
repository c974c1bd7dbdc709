// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"

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
	if c.objects || c.narrow {
		objects = format.Join(objects, mark)
	} else {
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
			p.list(dim, siteIndent, ", ", format.Join(count, objects), format.Bytes(r.AllocBytes)+" allocated", format.Process(process), report.PlaneName(r.Plane), r.Device)
			p.heldShares(r.Kept, o.Limit())
			continue
		}
		text := c.text([]string{format.SignedBytes(r.Bytes), format.Bytes(r.AllocBytes)}, count, c.processCell(process), planeShort(r.Plane), r.Device)
		if r.Incomplete {
			text += incomplete
		}
		p.line(plain, 0, text+frames.Text(&r.Frame, p.width-format.Width(text)))
		p.heldShares(r.Kept, o.Limit())
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, format.Count(uint64(len(list)-o.Limit()), "more line")+" (-T shows more)")
	}
	footnotes(p, n)
	return p.writeTo(w)
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
