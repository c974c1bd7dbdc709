// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// line of the user's own code, and what is held through it.
type siteRow struct {
	frame                   callstack.Frame
	process                 int
	device                  string
	plane                   string
	bytes                   int64
	objects, allocs, allocd uint64
	marked                  bool // incomplete: see Marks
}

// siteRows sums shares of memory by the line of the user's own code, process, device and plane.
func siteRows(s *ledger.Snapshot, st callstack.Stacks) []siteRow {
	type key struct {
		branchKey
		process int
		device  string
		plane   string
	}
	at := map[key]int{}
	var rows []siteRow
	for _, h := range Holdings(s) {
		f, kind := callstack.Frame{Function: h.Mark, Mark: true}, ledger.Device
		if h.Site != nil {
			stack := frames.Visible(st, h.Site.Stack, h.Site.API)
			f, kind = stack[frames.Headline(stack)], h.Site.Kind
		} else if h.Plane == PlaneTensor {
			kind = ledger.Tensor
		}
		k := key{lineKey(&f), h.Process, DeviceName(h.Device, kind), h.Plane}
		i, ok := at[k]
		if !ok {
			i = len(rows)
			at[k] = i
			rows = append(rows, siteRow{frame: f, process: h.Process, device: k.device, plane: h.Plane})
		}
		r := &rows[i]
		r.bytes += h.Live
		r.marked = r.marked || h.Site != nil && len(Marks(s, st, h.Site)) > 0
		if h.Site != nil && h.Plane != PlaneAsleep {
			r.objects += awakeObjects(h.Site)
			r.allocs += h.Site.AllocObjects
			r.allocd += h.Site.AllocBytes
		}
	}
	slices.SortStableFunc(rows, func(a, b siteRow) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.allocd, a.allocd))
	})
	return slices.DeleteFunc(rows, func(r siteRow) bool { return r.bytes == 0 && r.allocd == 0 })
}

// incomplete stands before the line of a row that has Marks.
const incomplete = "(incomplete) "

// WriteTable writes a row for each line of the user's own code that holds memory or allocated some.
func WriteTable(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: doubts(s)}
	viewTitle(p, s, n, o)
	if o.Since != nil {
		changeTable(p, s, st, o, n)
		footnotes(p, n)
		return p.writeTo(w)
	}
	list := siteRows(s, st)
	p.line(plain, 0, "")
	figures := func(bytes, objects, allocs, plane, device string) string {
		return pad(bytes, -9) + pad(objects, -11) + pad(allocs, -10) + "  " + pad(plane, 8) + pad(device, 8)
	}
	objects := words("objects", n.mark(atStacks))
	header := figures("live", objects, "allocated", "plane", "device")
	narrow := p.width-columns(header) < leastLine
	if !narrow {
		p.line(dim, 0, header+"line")
	}
	for i := range list[:min(len(list), o.top())] {
		r := &list[i]
		if narrow {
			p.headLine(plain, signedTotal(r.bytes), r.frame)
			p.list(dim, siteIndent, ", ", words(humanize.Comma(int64(r.objects)), objects), BytesText(r.allocd)+" allocated", r.plane, r.device)
			continue
		}
		text := figures(signedTotal(r.bytes), humanize.Comma(int64(r.objects)), BytesText(r.allocd), planeShort(r.plane), r.device)
		if r.marked {
			text += incomplete
		}
		p.line(plain, 0, text+frameText(&r.frame, p.width-columns(text)))
	}
	if len(list) > o.top() {
		p.text(dim, 0, counted(uint64(len(list)-o.top()), "more line")+" (-T shows more)")
	}
	footnotes(p, n)
	return p.writeTo(w)
}

// change is a line of the user's own code, and what was held through it before and after.
type change struct {
	siteRow
	before int64
}

// changedRows lists the lines that hold more or less than at o.Since, the largest change first.
func changedRows(s *ledger.Snapshot, st callstack.Stacks, o Options) []change {
	type key struct {
		branchKey
		pid           uint32
		begin         uint64
		device, plane string
	}
	at := map[key]int{}
	var list []change
	of := func(s *ledger.Snapshot, r siteRow) *change {
		p := &s.Processes[r.process]
		k := key{lineKey(&r.frame), p.PID, p.Begin, r.device, r.plane}
		i, ok := at[k]
		if !ok {
			i = len(list)
			at[k] = i
			r.bytes = 0
			list = append(list, change{siteRow: r})
		}
		return &list[i]
	}
	for _, r := range siteRows(s, st) {
		of(s, r).bytes = r.bytes
	}
	for _, r := range siteRows(o.Since, st) {
		of(o.Since, r).before = r.bytes
	}
	list = slices.DeleteFunc(list, func(c change) bool { return c.bytes == c.before })
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(magnitude(b.bytes-b.before), magnitude(a.bytes-a.before)) })
	return list
}

// changeTable writes a row for each line of the user's own code that holds more or less than before.
func changeTable(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options, n *notes) {
	list := changedRows(s, st, o)
	p.line(plain, 0, "")
	if len(list) == 0 {
		p.text(bold, 0, "Nothing changed")
		return
	}
	figures := func(change, before, after, plane, device string) string {
		return pad(change, -10) + pad(before, -10) + pad(after, -10) + "  " + pad(plane, 8) + pad(device, 8)
	}
	header := figures("change", "before", words("after", n.mark(atStacks)), "plane", "device")
	narrow := p.width-columns(header) < leastLine
	if !narrow {
		p.line(dim, 0, header+"line")
	}
	for i := range list[:min(len(list), o.top())] {
		r := &list[i]
		if narrow {
			p.headLine(plain, signedBytes(r.bytes-r.before), r.frame)
			p.list(dim, siteIndent, ", ", signedTotal(r.before)+" → "+signedTotal(r.bytes), r.plane, r.device)
			continue
		}
		text := figures(signedBytes(r.bytes-r.before), signedTotal(r.before), signedTotal(r.bytes), planeShort(r.plane), r.device)
		p.line(plain, 0, text+frameText(&r.frame, p.width-columns(text)))
	}
	if len(list) > o.top() {
		p.text(dim, 0, counted(uint64(len(list)-o.top()), "more line")+" (-T shows more)")
	}
}

// leastLine is how many columns a line of code has at least beside its figures.
const leastLine = 12

// planeShort fits a plane into a column.
func planeShort(plane string) string {
	if plane == PlaneUnexplained {
		return "?"
	}
	return plane
}
