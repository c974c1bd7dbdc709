// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// keptParts writes who keeps the memory of each process, as of its latest walk.
func keptParts(p *page, s *ledger.Snapshot, n *notes, o report.Options) {
	found, _ := report.MostKept(s)
	for _, k := range found[:min(len(found), o.Limit())] {
		if len(k.Lines) > 0 {
			keptPart(p, s, n, o, k)
		}
	}
	if more := len(found) - o.Limit(); more > 0 {
		p.line(plain, 0, "")
		p.text(plain, 0, format.Count(uint64(more), "more process")+" with holders (-T shows more)")
	}
}

func keptPart(p *page, s *ledger.Snapshot, n *notes, o report.Options, k *report.Kept) {
	p.line(plain, 0, "")
	p.text(bold, 0, format.Join("Who keeps it at", format.Span(k.At)+":", format.Process(&s.Processes[k.Process]), n.mark(report.AtHolders), n.mark(report.AtNoHolders)))
	p.text(plain, 0, keptText(k.Lines))
	p.line(plain, 0, "")
	if k.Between >= time.Second {
		p.grown(k.Grown, k.Passing, report.UnclearText(k.Unclear, k.Walks), nil, k.Between, o)
	}
	var named, none []report.HolderLine
	for _, l := range k.Lines {
		if l.Path == report.NoHolder {
			none = append(none, l)
		} else {
			named = append(named, l)
		}
	}
	p.holderLines(named[:min(len(named), o.Limit())], o.Limit())
	p.holderLines(none, len(none)) // the lines add up, so this one is always shown
	p.moreHolders(named[min(len(named), o.Limit()):])
}

// keptText is "62.8 GiB of tensors, 58.0 GiB of them from before the attach, and 1.00 GiB of
// other CUDA; 98.8% held by Python".
func keptText(lines []report.HolderLine) string {
	sum := report.SumHolders(lines)
	var older, driver uint64
	for i := range lines {
		older += lines[i].Older
		driver += lines[i].Driver
	}
	text := format.Bytes(sum.Bytes-driver) + " of tensors"
	if older > 0 {
		text += ", " + format.Bytes(older) + " of them from before the attach"
	}
	if driver > 0 {
		text += ", and " + format.Bytes(driver) + " of other CUDA"
	}
	return text + "; " + format.Share(sum.Found, sum.Bytes) + " held by Python"
}

// olderPart writes who keeps what the parts show as tensors from before the attach.
func olderPart(p *page, s *ledger.Snapshot, o report.Options) {
	kept := report.KeptBy(s)
	for _, h := range report.Holdings(s) {
		if !h.IsNameless() {
			continue
		}
		list := kept[h.Process].Divide(s, &h)
		if len(list) == 0 {
			continue
		}
		p.line(plain, 0, "")
		p.text(plain, 0, fmt.Sprintf("Who keeps the %s of %s, %s on %s:", format.Bytes(uint64(h.Live)), report.MarkName(h.Mark), format.Process(&s.Processes[h.Process]),
			format.Device(h.Device, ledger.Tensor)))
		p.heldShares(list, o.Limit())
	}
}

// heldShares writes the largest parts of some memory by holder, and the sum of the others.
func (p *page) heldShares(list []report.HeldShare, limit int) {
	rest, others := uint64(0), 0
	for i := range list {
		if i >= limit && list[i].Line != nil {
			rest += list[i].Bytes
			others++
			continue
		}
		if others > 0 { // before what has no known holder
			p.line(dim, siteIndent, format.Pad(format.Bytes(rest), 8)+"  "+format.Count(uint64(others), "more holder"))
			others = 0
		}
		p.heldShare(&list[i])
	}
	if others > 0 {
		p.line(dim, siteIndent, format.Pad(format.Bytes(rest), 8)+"  "+format.Count(uint64(others), "more holder"))
	}
}

func (p *page) heldShare(h *report.HeldShare) {
	figure, indent := format.Pad(format.Bytes(h.Bytes), 8)+"  ", siteIndent+10
	for _, piece := range pieces(h.Name(), p.width-indent) {
		p.line(plain, siteIndent, figure+strings.TrimLeft(piece, " "))
		figure = format.Pad("", 10)
	}
}

// keptLine writes who keeps the memory of sites below their line.
func (p *page) keptLine(name string, list []report.HeldShare, live uint64) {
	if text := report.KeptText(list, live); text != "" {
		p.paragraph(strings.Repeat(" ", siteIndent), name+text)
	}
}

// groupHolders returns who keeps what lives of a group's sites.
func groupHolders(s *ledger.Snapshot, k *report.Kept, g *verdict.Group) []report.HeldShare {
	sites := make([]*ledger.Site, 0, len(g.Sites))
	for _, i := range g.Sites {
		sites = append(sites, &s.Sites[i])
	}
	return k.OfSites(sites)
}
