// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// here says whether memory was on the GPU at the error, or on the host if that is what was wanted.
func (v *oomView) here(process int, device int32, uuid string, host bool) bool {
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

// holders of the GPU's memory, each byte once, largest first.
func (v *oomView) holders() []Holding {
	var list []Holding
	for _, h := range Holdings(v.s) {
		if h.Live > 0 && v.here(h.Process, h.Device, h.UUID, h.OnHost()) && (h.OnHost() || !h.Apart()) {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b Holding) int { return cmp.Compare(b.Live, a.Live) })
	return list
}

func (v *oomView) holdersPart(p *page, st callstack.Stacks, n *notes, o Options) {
	list := v.holders()
	where := "this GPU"
	if v.o.Kind.OnHost() {
		where = "pinned host memory"
	}
	p.line(plain, 0, "")
	if len(list) == 0 {
		p.text(bold, 0, words("Nothing that was seen holds memory of "+where, n.mark(atTotals)))
		return
	}
	when := "at the error"
	if v.s.End > v.o.Time {
		when = span(v.s.End-v.o.Time) + " after the error"
	}
	p.text(bold, 0, words("Largest holders of "+where+",", when, n.mark(atTotals), n.mark(atStacks)))
	p.line(plain, 0, "")
	for i := range list[:min(len(list), o.top())] {
		v.holder(p, st, o, i+1, &list[i])
	}
	if len(list) > o.top() {
		var sum int64
		for _, h := range list[o.top():] {
			sum += h.Live
		}
		p.text(plain, siteIndent, counted(uint64(len(list)-o.top()), "more holder")+" with "+BytesText(uint64(sum)))
	}
}

func (v *oomView) holder(p *page, st callstack.Stacks, o Options, rank int, h *Holding) {
	f := callstack.Frame{Function: h.Mark, Mark: true}
	var parts []string
	if h.Site != nil {
		stack := frames.Visible(st, h.Site.Stack, h.Site.API)
		f = stack[frames.Headline(stack)]
		parts = v.holderText(h)
	}
	p.headLine(bold, pad(fmt.Sprintf("%d.", rank), siteIndent)+pad(BytesText(uint64(h.Live)), 8), f)
	if h.Process != v.process {
		parts = append(parts, "another process, "+ownerName(v.s, h.Process, maxWord))
	}
	p.list(plain, siteIndent, ", ", parts...)
}

// holderText says how many there are, of what kind, and how they grew; of a cache how its
// segments did.
func (v *oomView) holderText(h *Holding) []string {
	x := h.Site
	switch h.Plane {
	case PlaneTensor:
		amount := counted(x.LiveObjects, "live tensor")
		if v.sampled(x) {
			amount = "about " + amount
		}
		return []string{amount, v.recentText(x.History)}
	case PlaneCache:
		return []string{"PyTorch's cache in " + counted(x.LiveObjects, "segment"), "these hold " + BytesText(x.LiveBytes), v.recentText(x.History)}
	}
	return []string{counted(x.LiveObjects, "allocation"), v.recentText(x.History), whereText(x.Device, x.Kind), untrusted.Clean(x.API)}
}

// sampled says whether a tensor site stands for more tensors than were looked at.
func (v *oomView) sampled(x *ledger.Site) bool {
	for i := range v.s.Tensors {
		if t := &v.s.Tensors[i]; t.Process == x.Process && t.Device == x.Device {
			return t.Sampled < t.LiveObjects
		}
	}
	return false
}
