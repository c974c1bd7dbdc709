// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteSummary writes the end of a session: what the memory is for, what processes that have ended
// held at their peak, live and peak memory by process and device, the largest sites, what NVML's
// figures are made of, and doubts as footnotes.
func WriteSummary(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	if o.Top <= 0 {
		o.Top = 5
	}
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	title(p, s, n)
	gpus(p, s)
	if o.Peak != nil { // what there is of steps stands at the processes that have ended
		explainPart(p, o.Peak, st, report.Options{Peak: o.Peak}, func(*purpose.Balance) bool { return true })
	} else {
		explainPart(p, s, st, o, func(*purpose.Balance) bool { return true })
	}
	endedParts(p, s, st, o)
	totals(p, s, n)
	torchTable(p, s)
	remarkLines(p, s, st)
	gpu, managed, host := report.DivideLeaks(report.Leaks(s, report.Options{}))
	title := "Largest sites of live GPU memory"
	if report.AsleepBytes(s) > 0 {
		title = "Largest sites of what stayed on the GPU"
	}
	if report.AllEnded(s) {
		title = "Largest sites of what was left at the end"
	}
	topSites(p, s, st, o, format.Join(title, n.mark(report.AtStacks)), gpu)
	keptParts(p, s, n, o)
	wasteParts(p, s, o.Limit())
	asleepSites(p, s, st, o.Top)
	stuckParts(p, s, st, o.Top)
	cacheSites(p, s, st, min(o.Top, maxSummaryCache))
	topSites(p, s, st, o, "Largest sites of live managed memory", managed)
	topSites(p, s, st, o, "Largest sites of live host memory", host)
	if len(s.Failures) > 0 {
		p.line(plain, 0, "")
		p.paragraph("", report.FailuresText(s))
	}
	usageParts(p, s, n)
	systemPart(p, s)
	olderPart(p, s, o)
	footnotes(p, n)
	return p.writeTo(w)
}

func gpus(p *page, s *ledger.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		used := fmt.Sprintf("%s of %s used", format.Bytes(g.Now()), format.Bytes(g.Total))
		if g.Parent == "" {
			p.list(plain, 0, ", ", append([]string{fmt.Sprintf("GPU %d: %s", g.Index, untrusted.Clean(g.Name)), format.ShortUUID(g.UUID), used}, report.GPUText(g)...)...)
		} else { // its name begins with that of its GPU
			p.list(plain, 2, ", ", fmt.Sprintf("MIG instance of GPU %d: %s", g.Index, untrusted.Clean(g.Name)), format.ShortUUID(g.UUID), used)
		}
	}
}

const maxSummaryCache = 3 // sites; a cache is normal

func topSites(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options, title string, list []ledger.Site) {
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, title)
	p.line(plain, 0, "")
	kept := report.KeptBy(s)
	book := lines.New(s, st, nil)
	rows := book.Together(book.Rows(list))
	for i := range rows[:min(len(rows), o.Top)] {
		r := &rows[i]
		x := &r.Site
		siteHead(p, i+1, r)
		owner := rowOwner(s, book.Jobs, r)
		p.list(plain, siteIndent, ", ", append([]string{format.Count(x.LiveObjects, format.Noun(x.Kind)), rowGrowth(s, r)}, owner...)...)
		p.list(plain, siteIndent, ", ", importedTexts(s, st, x)...)
		keptBelow(p, kept, book.Jobs, r)
		p.marked(r.Marks)
	}
	if len(rows) > o.Top {
		p.text(plain, siteIndent, moreText(s, rows[o.Top:]))
	}
}
