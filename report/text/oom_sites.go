// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
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

func (v *oomCase) sitesPart(p *page, st callstack.Stacks, n *notes, o report.Options) {
	list, kept := v.holdings(), report.KeptBy(v.s)
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
		v.siteLine(p, st, o, i+1, &list[i])
		if k := kept[list[i].Process]; k != nil {
			p.keptLine(k.Divide(v.s, &list[i]), uint64(list[i].Live))
		}
	}
	if len(list) > o.Limit() {
		var sum int64
		for _, h := range list[o.Limit():] {
			sum += h.Live
		}
		p.text(plain, siteIndent, format.Count(uint64(len(list)-o.Limit()), "more site")+" with "+format.Bytes(uint64(sum)))
	}
}

func (v *oomCase) siteLine(p *page, st callstack.Stacks, o report.Options, rank int, h *report.Holding) {
	f := callstack.Frame{Function: h.Mark, Mark: true}
	var parts []string
	if h.Site != nil {
		stack := frames.Visible(st, h.Site.Stack, h.Site.API)
		f = stack[frames.Headline(stack)]
		parts = v.siteText(h)
	}
	p.headLine(bold, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(format.Bytes(uint64(h.Live)), 8), f)
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
	return []string{format.Count(x.LiveObjects, "allocation"), v.recentText(x.Process, x.History), whereText(x.Device, x.Kind), untrusted.Clean(x.API)}
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
