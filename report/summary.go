// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// SummaryOptions of WriteSummary.
type SummaryOptions struct {
	Top             int  // sites shown, 0: 5
	Width           int  // columns of a line, 0: 80, at least 40
	Color           bool // for terminals
	KeepInterpreter bool // as in ProfileOptions
}

// WriteSummary writes what ends a recording: live and peak memory by process and
// device, the largest sites, the reconciliation with NVML, doubts as footnotes.
func WriteSummary(w io.Writer, s *ledger.Snapshot, st Stacks, o SummaryOptions) error {
	if o.Top <= 0 {
		o.Top = 5
	}
	p := newPage(o.Width, o.Color)
	n := &notes{doubts: doubts(s)}
	title(p, s, n)
	gpus(p, s)
	totals(p, s, n)
	topSites(p, s, st, o, n)
	if len(s.Failures) > 0 {
		p.line(plain, 0, "")
		p.paragraph("", failuresText(s))
	}
	balances(p, s, n)
	footnotes(p, n)
	return p.writeTo(w)
}

func gpus(p *page, s *ledger.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		p.list(plain, 0, ", ", fmt.Sprintf("GPU %d: %s", g.Index, symbolize.Clean(g.Name)),
			shortUUID(g.UUID), fmt.Sprintf("%s of %s used", bytesText(g.Used), bytesText(g.Total)))
	}
}

func totals(p *page, s *ledger.Snapshot, n *notes) {
	p.line(plain, 0, "")
	rows := [][]string{{"process", "memory", "live", "count", "peak", "after"}}
	for i := range s.Processes {
		process := &s.Processes[i]
		for _, t := range process.Totals {
			rows = append(rows, []string{
				ownerName(s, i, p.firstColumn(len(rows[0])-2)), totalName(&t),
				bytesText(t.LiveBytes), humanize.Comma(int64(t.LiveObjects)),
				bytesText(t.PeakBytes), span(minus(t.PeakTime, s.Begin)),
			})
		}
	}
	mark := n.mark(atTotals)
	if len(rows) == 1 {
		p.line(bold, 0, words("No allocation was seen", mark))
		return
	}
	p.line(bold, 0, words("Allocated since tracing began", mark))
	p.line(plain, 0, "")
	p.table(rows)
}

// totalName fits the table: "cuda:0", "cuda:0 managed", "host pinned".
func totalName(t *ledger.Total) string {
	if t.Kind == ledger.Device {
		return deviceName(t.Device, t.Kind)
	}
	return deviceName(t.Device, t.Kind) + " " + kindName(t.Kind)
}

func topSites(p *page, s *ledger.Snapshot, st Stacks, o SummaryOptions, n *notes) {
	list := Leaks(s, LeaksOptions{})
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.line(bold, 0, words("Largest sites of live memory", n.mark(atStacks)))
	p.line(plain, 0, "")
	for i := range list[:min(len(list), o.Top)] {
		x := &list[i]
		stack := frames(st, x.Stack, x.API, o.KeepInterpreter)
		siteHead(p, i+1, x, stack[headline(stack)])
		owner := siteOwner(s, x)
		p.list(plain, siteIndent, ", ", append([]string{counted(x.LiveObjects, "allocation"), growthText(s, x)}, owner...)...)
	}
	if rest := len(list) - o.Top; rest > 0 {
		var bytes uint64
		for i := range list[o.Top:] {
			bytes += list[o.Top+i].LiveBytes
		}
		p.line(plain, 0, fmt.Sprintf("%s%s with %s", strings.Repeat(" ", siteIndent), counted(uint64(rest), "more site"), bytesText(bytes)))
	}
}
