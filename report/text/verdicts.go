// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// verdictPart writes the lines that grow, the worst first, with the evidence, and advice.
func verdictPart(p *page, s *ledger.Snapshot, j *report.Judgement, o report.Options) {
	top := o.Limit()
	jobs := ranks.New(s)
	growing, others := divideVerdicts(jobs.Verdicts(j.Groups))
	if len(j.Groups) == 0 {
		return
	}
	p.line(plain, 0, "")
	switch leaking := countClass(growing, verdict.Leaking); {
	case leaking > 0:
		p.text(red, 0, "Leaking: "+format.Count(uint64(leaking), "line"))
	case len(growing) > 0:
		p.text(bold, 0, "No line leaks for certain; growing: "+format.Count(uint64(len(growing)), "line"))
	default:
		p.text(bold, 0, j.NoLineText()+": "+classCounts(others))
		p.paragraph("", report.TooShortText(s))
		p.advice(j)
		return
	}
	if countClass(growing, verdict.Leaking) == 0 {
		p.paragraph("", report.TooShortText(s))
	}
	kept := report.KeptBy(s)
	for i := range growing[:min(len(growing), top)] {
		g := &growing[i]
		verdictLine(p, s, jobs, j, i+1, g, o)
		first := &j.Groups[g.Groups[0]]
		p.keptLine(inFirst(jobs, g), groupHolders(s, kept[g.Process], first), first.LiveBytes)
	}
	if more := len(growing) - top; more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more line")+" (-T shows more)")
	}
	if len(others) > 0 {
		p.line(plain, 0, "")
		p.paragraph("", "Other lines: "+classCounts(others))
	}
	p.advice(j)
}

func (p *page) advice(j *report.Judgement) {
	for _, a := range j.Advice {
		p.line(plain, 0, "")
		p.paragraph("→ ", a)
		p.said = append(p.said, a)
	}
}

// balancePart writes what each GPU is used for, what of that grows, and the steps of trainings.
func balancePart(p *page, s *ledger.Snapshot, j *report.Judgement, o report.Options) {
	for i := range j.GPUs {
		b := &j.GPUs[i]
		if i == 0 || len(b.Rows) > 0 {
			p.line(plain, 0, "")
		}
		p.paragraph("", b.Name+": "+b.Used)
		for _, text := range b.Grows {
			p.paragraph("  + ", text)
		}
	}
	p.leakSteps(s, o, o.Limit())
}

func countClass(list []ranks.Verdict, class verdict.Class) (n int) {
	for i := range list {
		if list[i].Class == class {
			n++
		}
	}
	return n
}

// classCounts returns "12 steady, 2 cache, 1 one-off".
func classCounts(counts map[verdict.Class]uint64) string {
	var parts []string
	for _, class := range []verdict.Class{verdict.Steady, verdict.Cache, verdict.OneOff, verdict.Unknown} {
		if n := counts[class]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(parts, ", ")
}

func verdictLine(p *page, s *ledger.Snapshot, jobs *ranks.Jobs, j *report.Judgement, rank int, g *ranks.Verdict, o report.Options) {
	style := plain
	if g.Class == verdict.Leaking {
		style = bold
	}
	p.line(plain, 0, "")
	p.headLine(style, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(g.Class.String(), 8), g.Line)
	sign, amount := strings.Repeat(" ", siteIndent), amountText(s, &g.Group)
	if g.Several() {
		p.paragraph(sign, jobs.Growth(g, j.Groups, stepsIn(s, o)))
		p.paragraph(sign, inFirst(jobs, g)+untrusted.Clean(g.Evidence))
		p.list(plain, siteIndent, ", ", amount, g.Object.String(), firstOf(s, g.Process, len(g.Processes)), gpusOf(s, sitesOf(s, g)))
		return
	}
	p.paragraph(sign, evidenceText(s, &g.Group, o))
	p.list(plain, siteIndent, ", ", amount, g.Object.String(), format.Process(&s.Processes[g.Process]), whereText(g.Device, g.Kind), jobs.Text(g.Processes))
}

// heldBytes returns what a line holds, and what it held at most if a process freed all of it when
// it ended.
func heldBytes(s *ledger.Snapshot, g *verdict.Group) (bytes uint64, before bool) {
	if g.LiveBytes > 0 || s.Processes[g.Process].End == 0 {
		return g.LiveBytes, false
	}
	for _, i := range g.Sites {
		bytes += s.Sites[i].Peak
	}
	return bytes, bytes > 0
}

// amountText returns "12.0 MiB in 3 tensors of 2 sites", or "up to 12.0 MiB of 2 sites until the
// process ended".
func amountText(s *ledger.Snapshot, g *verdict.Group) string {
	sites := ""
	if len(g.Sites) > 1 {
		sites = "of " + format.Count(uint64(len(g.Sites)), "site")
	}
	bytes, before := heldBytes(s, g)
	if bytes == 0 && g.Estimated() { // they lost their stacks in pauses
		return format.Join("an unknown amount", sites)
	}
	if before {
		return format.Join("up to", format.Bytes(bytes), sites, "until the process ended")
	}
	return format.Join(format.Bytes(bytes), "in", format.Count(g.LiveObjects, format.Noun(g.Kind)), sites)
}

func divideVerdicts(list []ranks.Verdict) (growing []ranks.Verdict, others map[verdict.Class]uint64) {
	others = map[verdict.Class]uint64{}
	for _, g := range list {
		if g.Class >= verdict.Growing {
			growing = append(growing, g)
		} else {
			others[g.Class]++
		}
	}
	return growing, others
}

func stepsIn(s *ledger.Snapshot, o report.Options) func(process int) *steps.Steps {
	return func(process int) *steps.Steps { return stepsOf(s, process, o) }
}

// inFirst names the process whose evidence and holder follow, where a verdict is of several.
func inFirst(jobs *ranks.Jobs, v *ranks.Verdict) string {
	if !v.Several() {
		return ""
	}
	return jobs.Names([]int{v.Process}) + ": "
}

func severalText(jobs *ranks.Jobs, processes []int) string {
	if jobs.Ranks(processes) == "" {
		return fmt.Sprintf("%d pids", len(processes))
	}
	return fmt.Sprintf("%d ranks", len(processes))
}

func firstOf(s *ledger.Snapshot, process, count int) string {
	return fmt.Sprintf("%s and %d more", format.Process(&s.Processes[process]), count-1)
}

func sitesOf(s *ledger.Snapshot, v *ranks.Verdict) (list []*ledger.Site) {
	for _, i := range v.Sites {
		list = append(list, &s.Sites[i])
	}
	return list
}
