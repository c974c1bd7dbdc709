// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// verdictPart writes the lines that grow, the worst first, with the evidence, and advice.
func verdictPart(p *page, s *ledger.Snapshot, j *report.Judgement, top int) {
	var growing []verdict.Group
	others := map[verdict.Class]uint64{}
	for _, g := range j.Groups {
		if g.Class >= verdict.Growing {
			growing = append(growing, g)
		} else {
			others[g.Class]++
		}
	}
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
		p.text(bold, 0, "No line grows: "+classCounts(others))
		return
	}
	for _, text := range fullTexts(s, growing) {
		p.paragraph("", text)
	}
	kept := report.KeptBy(s)
	for i := range growing[:min(len(growing), top)] {
		g := &growing[i]
		verdictLine(p, s, i+1, g)
		p.keptLine(groupHolders(s, kept[g.Process], g), g.LiveBytes)
	}
	if more := len(growing) - top; more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more line")+" (-T shows more)")
	}
	if len(others) > 0 {
		p.line(plain, 0, "")
		p.paragraph("", "Other lines: "+classCounts(others))
	}
	for _, a := range j.Advice {
		p.line(plain, 0, "")
		p.paragraph("→ ", a)
	}
}

func countClass(list []verdict.Group, class verdict.Class) (n int) {
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
	for _, class := range []verdict.Class{verdict.Steady, verdict.Cache, verdict.OneOff} {
		if n := counts[class]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(parts, ", ")
}

// fullTexts returns of each GPU when it will be full at the rate of all growth there.
func fullTexts(s *ledger.Snapshot, list []verdict.Group) (texts []string) {
	type onGPU struct {
		process int
		device  int32
	}
	soonest := map[onGPU]*verdict.Group{}
	var order []onGPU
	for i := range list {
		g := &list[i]
		if g.UntilFull <= 0 || g.GPURate <= 0 {
			continue
		}
		at := onGPU{g.Process, g.Device}
		if soonest[at] == nil {
			order = append(order, at)
		}
		if x := soonest[at]; x == nil || g.UntilFull < x.UntilFull {
			soonest[at] = g
		}
	}
	for _, at := range order {
		g := soonest[at]
		texts = append(texts, fmt.Sprintf("%s of %s is full in %s: it grows by %s/min in all", format.Device(at.device, ledger.Device),
			format.Process(&s.Processes[at.process]), format.Span(uint64(g.UntilFull)), format.Bytes(uint64(g.GPURate*60))))
	}
	return texts
}

func verdictLine(p *page, s *ledger.Snapshot, rank int, g *verdict.Group) {
	style := plain
	if g.Class == verdict.Leaking {
		style = bold
	}
	p.line(plain, 0, "")
	p.headLine(style, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(g.Class.String(), 8), g.Line)
	p.paragraph(strings.Repeat(" ", siteIndent), untrusted.Clean(g.Evidence))
	amount := format.Bytes(g.LiveBytes) + " in " + format.Count(g.LiveObjects, format.Noun(g.Kind))
	p.list(plain, siteIndent, ", ", amount, g.Object.String(), format.Process(&s.Processes[g.Process]), whereText(g.Device, g.Kind))
}
