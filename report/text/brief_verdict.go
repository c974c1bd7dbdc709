// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// shownVerdict is a line whose holder and callers are written; the lines of one kept graph share
// both.
type shownVerdict struct {
	rank    int // 0: none
	process int
	device  int32
	callers string
	holder  string
}

// verdict writes a line that grows, with its evidence, holder and stack. It refers to a line before
// it that has the same, and returns the line to which the next may refer.
func (p *brief) verdict(rank int, g *verdict.Group, before shownVerdict) shownVerdict {
	style := plain
	if g.Class == verdict.Leaking {
		style = bold
	}
	p.headLine(style, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(g.Class.String(), 8), g.Line)
	sign := strings.Repeat(" ", siteIndent)
	p.shortened(sign, strings.Fields(untrusted.Clean(g.Evidence)), p.evidence)

	x := &p.s.Sites[g.Sites[0]]
	stack := frames.Visible(p.st, x.Stack, x.API)
	own := frames.Headline(stack)
	now := shownVerdict{rank, g.Process, g.Device, callersOf(stack, own), report.KeptText(groupHolders(p.s, p.kept[g.Process], g), g.LiveBytes)}
	same := before.rank > 0 && before.process == now.process && before.device == now.device
	called, kept := before.rank > 0 && now.callers != "" && now.callers == before.callers, same && now.holder != "" && now.holder == before.holder
	amount := p.amount(g)
	if same {
		amount = amount[:2] // without the process and the device
	}
	p.list(plain, siteIndent, ", ", append(amount, asBefore(called, kept, before.rank))...)
	if now.holder != "" && !kept {
		p.shortened(sign, strings.Fields(now.holder), p.evidence)
	}
	if ownLines(stack) > 1 && !called {
		p.folded(stack, own)
	}
	if called && (kept || now.holder == "") {
		return before
	}
	return now
}

// amount returns how much a line holds, of what, whose and where.
func (p *brief) amount(g *verdict.Group) []string {
	text := format.Bytes(g.LiveBytes) + " in " + format.Count(g.LiveObjects, format.Noun(g.Kind))
	if len(g.Sites) > 1 {
		text += " of " + format.Count(uint64(len(g.Sites)), "site")
	}
	where := whereText(g.Device, g.Kind)
	if g.Kind == ledger.Tensor {
		where = format.Device(g.Device, g.Kind)
	}
	return []string{text, g.Object, format.Process(&p.s.Processes[g.Process]), where}
}

// asBefore returns "called and kept as 1".
func asBefore(called, kept bool, rank int) string {
	switch {
	case called && kept:
		return fmt.Sprintf("called and kept as %d", rank)
	case called:
		return fmt.Sprintf("called as %d", rank)
	case kept:
		return fmt.Sprintf("kept as %d", rank)
	}
	return ""
}

// callersOf returns a key of the user's own frames that called the headline, "" for none.
func callersOf(stack []callstack.Frame, own int) string {
	var b strings.Builder
	for i := own + 1; i < len(stack); i++ {
		if f := &stack[i]; frames.IsUser(f) {
			fmt.Fprintf(&b, "%q %q %d\n", f.Function, f.File, f.Line)
		}
	}
	return b.String()
}
