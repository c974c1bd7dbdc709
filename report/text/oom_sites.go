// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// here reports whether memory was on the GPU at the error, or on the host if the request was for
// host memory.
func (v *oomCase) here(process int, device int32, uuid string, host bool) bool {
	switch {
	case host != v.o.Kind.OnHost() || !v.lived(process):
		return false
	case host:
		return device != ledger.CPUDevice // tensors there are not pinned
	case v.uuid != "" && uuid != "":
		return uuid == v.uuid
	case v.uuid != "":
		return process == v.process && v.only
	}
	return process == v.process && device == v.o.Device
}

// holdings returns what holds the GPU's memory: sites and marks, each byte once, largest first.
func (v *oomCase) holdings() []report.Holding {
	var list []report.Holding
	for _, h := range report.Holdings(v.s) {
		if h.Live > 0 && v.here(h.Process, h.Device, h.UUID, h.OnHost()) && (h.OnHost() || !h.Apart()) {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b report.Holding) int { return cmp.Compare(b.Live, a.Live) })
	return list
}

// oomRow is a line of code with what it holds in one plane, or memory that no line allocated.
type oomRow struct {
	report.Holding // the sum; its Site is that of the row
	line           callstack.Frame
	about          []string // "in GELU.forward, Linear.forward"
	kept           []report.HeldShare
}

// rows sums holdings by line, process, device and plane, largest first.
func (v *oomCase) rows(st callstack.Stacks) (list []oomRow) {
	kept, book := report.KeptBy(v.s), lines.New(v.s, st, nil)
	held := map[string]map[ledger.SiteID]report.Holding{} // by plane
	sites := map[string][]ledger.Site{}
	var marks []oomRow
	for _, h := range v.holdings() {
		if h.Site == nil {
			marks = append(marks, oomRow{Holding: h, line: callstack.Frame{Function: h.Mark, Mark: true}, kept: kept[h.Process].Divide(v.s, &h)})
			continue
		}
		if held[h.Plane] == nil {
			held[h.Plane] = map[ledger.SiteID]report.Holding{}
		}
		held[h.Plane][v.s.IDOf(h.Site)] = h
		sites[h.Plane] = append(sites[h.Plane], *h.Site)
	}
	for _, plane := range slices.Sorted(maps.Keys(sites)) {
		for _, r := range book.Rows(sites[plane]) {
			row := oomRow{line: r.Frame, about: aboutRow(&r), Holding: report.Holding{Plane: plane, Site: &r.Site, Process: r.Process, Device: r.Device}}
			for i := range r.Sites {
				h := held[plane][v.s.IDOf(&r.Sites[i])]
				row.Live += h.Live
				row.kept = report.AddShares(row.kept, kept[r.Process].Divide(v.s, &h))
			}
			list = append(list, row)
		}
	}
	list = append(list, marks...)
	slices.SortStableFunc(list, func(a, b oomRow) int { return cmp.Compare(b.Live, a.Live) })
	return list
}

func (v *oomCase) sitesPart(p *page, st callstack.Stacks, n *notes, o report.Options) {
	list := v.rows(st)
	where, none := "on this GPU", "No traced memory is on this GPU"
	if v.o.Kind.OnHost() {
		where, none = "of pinned host memory", "No traced memory is on pinned host memory"
	}
	p.line(plain, 0, "")
	if len(list) == 0 {
		p.text(bold, 0, format.Join(none, n.mark(report.AtTotals)))
		return
	}
	when := "at the error"
	if v.s.End > v.o.Time {
		when = format.Span(v.s.End-v.o.Time) + " after the error"
	}
	p.text(bold, 0, format.Join("Largest sites "+where+",", when, n.mark(report.AtTotals), n.mark(report.AtStacks)))
	p.line(plain, 0, "")
	for i := range list[:min(len(list), o.Limit())] {
		v.siteLine(p, i+1, &list[i])
		p.keptLine("", list[i].kept, uint64(list[i].Live))
	}
	if len(list) > o.Limit() {
		var sum int64
		for _, h := range list[o.Limit():] {
			sum += h.Live
		}
		p.text(plain, siteIndent, format.Count(uint64(len(list)-o.Limit()), "more site")+" with "+format.Bytes(uint64(sum)))
	}
}

func (v *oomCase) siteLine(p *page, rank int, h *oomRow) {
	var parts []string
	if h.Site != nil {
		parts = append(v.siteText(&h.Holding), h.about...)
	}
	p.headLine(bold, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(format.Bytes(uint64(h.Live)), 8), h.line)
	if h.Process != v.process {
		parts = append(parts, "another process, "+ownerName(v.s, h.Process, report.MaxName))
	}
	p.list(plain, siteIndent, ", ", parts...)
}

// siteText returns the number of allocations, their kind, and their growth; for a cache, those of
// its segments.
func (v *oomCase) siteText(h *report.Holding) []string {
	x := h.Site
	switch h.Plane {
	case report.PlaneTensor:
		amount := format.Count(x.LiveObjects, "live tensor")
		if v.sampled(x) {
			amount = "about " + amount
		}
		return []string{amount, v.recentText(x.Process, x.History)}
	case report.PlaneCache:
		return []string{"PyTorch's cache in " + format.Count(x.LiveObjects, "segment"), "these hold " + format.Bytes(x.LiveBytes), v.recentText(x.Process, x.History)}
	}
	return []string{format.Count(x.LiveObjects, "allocation"), v.recentText(x.Process, x.History), whereText(x.Device, x.Kind), report.CallText(x.API)}
}

// sampled reports whether the tensors of a site were sampled.
func (v *oomCase) sampled(x *ledger.Site) bool {
	for i := range v.s.Tensors {
		if t := &v.s.Tensors[i]; t.Process == x.Process && t.Device == x.Device {
			return t.Sampled < t.LiveObjects
		}
	}
	return false
}

// keptPart writes who kept the memory of the process: as of the error, if its memory could be read
// at once.
func (v *oomCase) keptPart(p *page, n *notes, o report.Options) {
	if v.process < 0 {
		return
	}
	k := report.KeptBy(v.s)[v.process]
	if k != nil && k.Failure != "" {
		p.line(plain, 0, "")
		p.paragraph("", "Who keeps it is unknown: "+k.Failure+".")
		return
	}
	if k == nil || len(k.Lines) == 0 {
		return
	}
	keptPart(p, v.s, n, o, k)
	if age := report.Minus(v.o.Time, v.s.Begin+k.At); age > 0 {
		p.line(plain, 0, "")
		p.paragraph("", "At the error, the process's memory could not be read: this is of "+format.Span(age)+" before.")
	}
}
