// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/words"
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
	figures := func(bytes, objects, allocs, plane, device string) string {
		return words.Pad(bytes, -9) + words.Pad(objects, -11) + words.Pad(allocs, -10) + "  " + words.Pad(plane, 8) + words.Pad(device, 8)
	}
	objects := words.Join("objects", n.mark(report.AtStacks))
	header := figures("live", objects, "allocated", "plane", "device")
	narrow := p.width-words.Width(header) < leastLine
	if !narrow {
		p.line(dim, 0, header+"line")
	}
	for i := range list[:min(len(list), o.Limit())] {
		r := &list[i]
		if narrow {
			p.headLine(plain, words.SignedBytes(r.Bytes), r.Frame)
			p.list(dim, siteIndent, ", ", words.Join(humanize.Comma(int64(r.Objects)), objects), words.Bytes(r.AllocBytes)+" allocated", r.Plane, r.Device)
			p.heldShares(r.Kept, o.Limit())
			continue
		}
		text := figures(words.SignedBytes(r.Bytes), humanize.Comma(int64(r.Objects)), words.Bytes(r.AllocBytes), planeShort(r.Plane), r.Device)
		if r.Incomplete {
			text += incomplete
		}
		p.line(plain, 0, text+frames.Text(&r.Frame, p.width-words.Width(text)))
		p.heldShares(r.Kept, o.Limit())
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, words.Count(uint64(len(list)-o.Limit()), "more line")+" (-T shows more)")
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
	figures := func(change, before, after, plane, device string) string {
		return words.Pad(change, -10) + words.Pad(before, -10) + words.Pad(after, -10) + "  " + words.Pad(plane, 8) + words.Pad(device, 8)
	}
	header := figures("change", "before", words.Join("after", n.mark(report.AtStacks)), "plane", "device")
	narrow := p.width-words.Width(header) < leastLine
	if !narrow {
		p.line(dim, 0, header+"line")
	}
	for i := range list[:min(len(list), o.Limit())] {
		r := &list[i]
		if narrow {
			p.headLine(plain, words.Difference(r.Bytes-r.Before), r.Frame)
			p.list(dim, siteIndent, ", ", words.SignedBytes(r.Before)+" → "+words.SignedBytes(r.Bytes), r.Plane, r.Device)
			continue
		}
		text := figures(words.Difference(r.Bytes-r.Before), words.SignedBytes(r.Before), words.SignedBytes(r.Bytes), planeShort(r.Plane), r.Device)
		p.line(plain, 0, text+frames.Text(&r.Frame, p.width-words.Width(text)))
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, words.Count(uint64(len(list)-o.Limit()), "more line")+" (-T shows more)")
	}
}

// leastLine is the least columns of a line of code beside its figures.
const leastLine = 12

// planeShort returns the name of a plane in a narrow column.
func planeShort(plane string) string {
	if plane == report.PlaneUnexplained {
		return "?"
	}
	return plane
}
