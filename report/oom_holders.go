// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/symbolize"
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
func (v *oomView) holders() []holding {
	var list []holding
	for _, h := range holdings(v.s) {
		if h.live > 0 && v.here(h.process, h.device, h.uuid, h.host()) {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b holding) int { return cmp.Compare(b.live, a.live) })
	return list
}

func (v *oomView) holdersPart(p *page, st Stacks, n *notes, o OOMOptions) {
	list := v.holders()
	where := "this GPU"
	if v.o.Kind.OnHost() {
		where = "pinned host memory"
	}
	p.line(plain, 0, "")
	if len(list) == 0 {
		p.line(bold, 0, words("Nothing that was seen holds memory of "+where, n.mark(atTotals)))
		return
	}
	p.line(bold, 0, words("Largest holders of "+where+",", span(minus(v.s.End, v.o.Time)), "after the error", n.mark(atTotals), n.mark(atStacks)))
	p.line(plain, 0, "")
	for i := range list[:min(len(list), o.Top)] {
		v.holder(p, st, o, i+1, &list[i])
	}
	if len(list) > o.Top {
		var sum int64
		for _, h := range list[o.Top:] {
			sum += h.live
		}
		p.line(plain, siteIndent, counted(uint64(len(list)-o.Top), "more holder")+" with "+bytesText(uint64(sum)))
	}
}

func (v *oomView) holder(p *page, st Stacks, o OOMOptions, rank int, h *holding) {
	f := symbolize.Frame{Function: h.mark, Mark: true}
	var parts []string
	if h.site != nil {
		stack := frames(st, h.site.Stack, h.site.API, o.KeepInterpreter)
		f = stack[headline(stack)]
		parts = v.holderText(h)
	}
	p.headLine(bold, pad(fmt.Sprintf("%d.", rank), siteIndent)+pad(bytesText(uint64(h.live)), 8), f)
	if h.process != v.process {
		parts = append(parts, "another process, "+ownerName(v.s, h.process, maxWord))
	}
	p.list(plain, siteIndent, ", ", parts...)
}

// holderText says how many there are, of what kind, and how they grew; of a cache how its
// segments did.
func (v *oomView) holderText(h *holding) []string {
	x := h.site
	switch h.plane {
	case planeTensor:
		amount := counted(x.LiveObjects, "live tensor")
		if v.sampled(x) {
			amount = "about " + amount
		}
		return []string{amount, v.recentText(x.History)}
	case planeCache:
		return []string{"PyTorch's cache in " + counted(x.LiveObjects, "segment"), "these hold " + bytesText(x.LiveBytes), v.recentText(x.History)}
	}
	return []string{counted(x.LiveObjects, "allocation"), v.recentText(x.History), whereText(x.Device, x.Kind), symbolize.Clean(x.API)}
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
