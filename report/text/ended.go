// SPDX-License-Identifier: Apache-2.0

package text

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxEnded is how many ended processes the summary has the peak of, those with the highest.
const maxEnded = 3

// endedParts writes what processes that have ended held at their peak: what is left of them says
// little about what they needed.
func endedParts(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	if o.Job {
		jobParts(p, s, st, o)
		return
	}
	list := report.HighestPeaks(s)
	for _, x := range list[:min(len(list), maxEnded)] {
		p.line(plain, 0, "")
		endedPart(p, s, st, o, x)
	}
	if more := len(list) - maxEnded; more > 0 {
		p.line(plain, 0, "")
		p.text(plain, 0, format.Count(uint64(more), "more process")+" ended with lower peaks")
	}
}

func endedPart(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options, x *ledger.Peak) {
	p.text(bold, 0, report.EndedText(s, x))
	if text := report.RanOutText(s, x); text != "" {
		p.text(red, 0, text)
		stack := frames.Visible(st, x.OOM.Stack, x.OOM.API)
		p.line(plain, siteIndent, frames.Text(&stack[frames.Headline(stack)], p.width-siteIndent))
		if path := o.Records[s.Processes[x.Process].PID]; path != "" {
			p.text(plain, siteIndent, "what all processes held then is in "+untrusted.Clean(path))
		}
	}
	p.text(plain, 0, "It held "+report.HeldText(x))
	if text := report.SitesAsOfText(s, x); text != "" {
		p.text(plain, 0, text)
	}
	peakSites(p, x.Books, st, o)
}

func peakSites(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	list, _, _ := report.DivideLeaks(report.Leaks(s, report.Options{}))
	for i := range list[:min(len(list), o.Top)] {
		x := &list[i]
		stack := frames.Visible(st, x.Stack, x.API)
		siteHead(p, i+1, x, stack[frames.Headline(stack)])
		p.list(plain, siteIndent, ", ", format.Count(x.LiveObjects, format.Noun(x.Kind)), whereText(x.Device, x.Kind))
		p.marked(report.Marks(s, st, x))
	}
	if len(list) > o.Top {
		p.text(plain, siteIndent, moreText(s, list[o.Top:]))
	}
}
