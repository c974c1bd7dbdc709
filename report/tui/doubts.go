// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// oldVerdicts is the age from which verdicts have their age beside them, ns.
const oldVerdicts = 5e9

// readDoubts collects what the books lack. What makes totals wrong stands on every screen.
func (d *reading) readDoubts() {
	if v := d.Judged; v == nil {
		d.doubts = append(d.doubts, "no line has a verdict yet")
	} else if age := report.Minus(d.s.End, v.at); age >= oldVerdicts {
		d.doubts = append(d.doubts, "verdicts are "+format.Span(age)+" old")
	}
	for _, x := range report.Doubts(d.Snapshot) {
		d.doubts = append(d.doubts, tidy(x.Text))
		if x.At == report.AtTotals && d.loss == "" {
			d.loss = tidy(x.Text)
		}
	}
}

// doubtsPage is what the books lack, with remarks and advice.
type doubtsPage struct{ scrolled }

func (doubtsPage) lines(x *scene) []string {
	b, width := x.b, x.size.width
	if b == nil {
		return nil
	}
	list := []string{x.p.paint(bold, "What the figures leave open"), ""}
	if len(b.doubts) == 0 {
		list = append(list, "Nothing was lost.")
	}
	for _, text := range b.doubts {
		list = append(list, wrap("- ", text, width)...)
	}
	if remarks := b.remarkTexts(); len(remarks) > 0 {
		list = append(list, "", x.p.paint(bold, "Remarks"), "")
		for _, text := range remarks {
			list = append(list, wrap("- ", text, width)...)
		}
	}
	if b.Judged != nil && len(b.Judged.judgement.Advice) > 0 {
		list = append(list, "", x.p.paint(bold, "Advice"), "")
		for _, text := range b.Judged.judgement.Advice {
			list = append(list, wrap("- ", tidy(text), width)...)
		}
	}
	return list
}

// remarks returns what else is to be said of a moment. It costs too much for every one.
func (b *books) remarkTexts() (list []string) {
	for _, text := range append(report.TorchTexts(b.Snapshot), report.Remarks(b.Snapshot, b.Stacks)...) {
		list = append(list, tidy(text))
	}
	return list
}

// jobText returns "rank 3 of 8, pod ml/llama-0".
func jobText(p *ledger.Process) string {
	return tidy(strings.Join(report.WorkloadText(p.Workload), ", "))
}
