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
