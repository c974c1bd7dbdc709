// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/purpose"
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
	p.text(plain, 0, report.HeldText(x))
	for _, b := range purpose.AtPeak(x, o.Peaks[s.Processes[x.Process].ID()], st) {
		if o.Peak == nil && b.Divided() {
			p.line(plain, 0, "")
			p.balance(s, &b.Balance, o, compactRows, 0)
			p.line(plain, 0, "")
		}
	}
	p.processSteps(s, x.Process, o)
	if text := report.SitesAsOfText(s, x); text != "" {
		p.text(plain, 0, text)
	}
	peakSites(p, x.Books, st, o)
}

func peakSites(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	list, _, _ := report.DivideLeaks(report.Leaks(s, report.Options{}))
	rows := lines.New(s, st, nil).Rows(list)
	for i := range rows[:min(len(rows), o.Top)] {
		x := &rows[i]
		siteHead(p, i+1, x)
		p.list(plain, siteIndent, ", ", format.Count(x.LiveObjects, format.Noun(x.Kind)), whereText(x.Device, x.Kind))
		p.marked(x.Marks)
	}
	if len(rows) > o.Top {
		p.text(plain, siteIndent, moreText(s, rows[o.Top:]))
	}
}

// maxRanks is how many processes of a job are listed, those with the lowest ranks.
const maxRanks = 256

// jobParts writes what each process of a job that has ended held at its peak, by rank.
func jobParts(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	list := report.Ranks(s)
	if len(list) == 0 {
		return
	}
	more := len(list) - maxRanks
	list = list[:min(len(list), maxRanks)]
	p.line(plain, 0, "")
	p.text(bold, 0, "GPU memory of each rank at its peak; idle: PyTorch's cache")
	p.line(plain, 0, "")
	rows := [][]string{{"process", "rank", "tensors", "idle", "other"}}
	for i := range list {
		x := &list[i]
		rows = append(rows, []string{format.Process(x.Process), cmp.Or(format.Digits(x.Process.Rank), "-"),
			format.SignedBytes(x.Tensors), format.SignedBytes(x.Cache), format.SignedBytes(x.Other)})
	}
	p.table(rows)
	if more > 0 {
		p.text(plain, 0, format.Count(uint64(more), "more process"))
	}
	for i := range list {
		x := &list[i]
		p.line(plain, 0, "")
		if name := x.Name(); name != "" {
			p.text(bold, 0, name+":")
		}
		endedPart(p, s, st, o, x.Peak)
	}
}
