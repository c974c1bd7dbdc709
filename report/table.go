// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// line of the user's own code, and what is held through it.
type siteRow struct {
	frame                   symbolize.Frame
	process                 int
	device                  string
	plane                   string
	bytes                   int64
	objects, allocs, allocd uint64
}

// siteRows sums shares of memory by the line of the user's own code, process, device and plane.
func siteRows(s *ledger.Snapshot, st Stacks, keepInterpreter bool) []siteRow {
	type key struct {
		branchKey
		process int
		device  string
		plane   string
	}
	at := map[key]int{}
	var rows []siteRow
	for _, h := range Holdings(s) {
		f, kind := symbolize.Frame{Function: h.Mark, Mark: true}, ledger.Device
		if h.Site != nil {
			stack := frames.Of(st, h.Site.Stack, h.Site.API, keepInterpreter)
			f, kind = stack[frames.Headline(stack)], h.Site.Kind
		} else if h.Plane == PlaneTensor {
			kind = ledger.Tensor
		}
		k := key{branchKey{frames.Name(&f), f.File, f.Line, f.Python}, h.Process, DeviceName(h.Device, kind), h.Plane}
		i, ok := at[k]
		if !ok {
			i = len(rows)
			at[k] = i
			rows = append(rows, siteRow{frame: f, process: h.Process, device: k.device, plane: h.Plane})
		}
		r := &rows[i]
		r.bytes += h.Live
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

// WriteTable writes a row for each line of the user's own code that holds memory or allocated some.
func WriteTable(w io.Writer, s *ledger.Snapshot, st Stacks, o ViewOptions) error {
	p := newPage(o.Width, o.Color)
	n := &notes{doubts: doubts(s)}
	title(p, s, n)
	list := siteRows(s, st, o.KeepInterpreter)
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
		p.line(plain, 0, text+frameText(&r.frame, p.width-columns(text)))
	}
	if len(list) > o.top() {
		p.text(dim, 0, counted(uint64(len(list)-o.top()), "more line")+" (-T shows more)")
	}
	footnotes(p, n)
	return p.writeTo(w)
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
