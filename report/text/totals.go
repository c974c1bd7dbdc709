// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// moreText returns "2 more lines with 3.0 MiB, 1 more line of imported memory".
func moreText(s *ledger.Snapshot, rows []lines.Row) string {
	var own, imported, bytes uint64
	for i := range rows {
		if !report.InSums(rows[i].Kind) {
			imported++
			continue
		}
		own, bytes = own+1, bytes+report.Sum(s, rows[i].Sites).Own.Bytes
	}
	var parts []string
	if own > 0 {
		parts = append(parts, format.Count(own, "more line")+" with "+format.Bytes(bytes))
	}
	if imported > 0 {
		parts = append(parts, format.Count(imported, "more line")+" of imported memory")
	}
	return strings.Join(parts, ", ")
}

func totals(p *page, s *ledger.Snapshot, n *notes) {
	p.line(plain, 0, "")
	rows := totalRows(p, s)
	mark := n.mark(report.AtTotals)
	if len(rows) == 1 {
		none := "No allocation was seen"
		if len(s.Tensors) > 0 { // a warm cache needs none
			none = "Nothing was allocated from CUDA since the attach"
		}
		p.text(bold, 0, format.Join(none, mark))
		return
	}
	p.text(bold, 0, format.Join("Allocated since the attach", mark))
	p.line(plain, 0, "")
	p.table(rows)
	sum := report.Sum(s, s.Sites)
	if sum.Imported.Sites+sum.Managed.Sites > 0 {
		p.line(plain, 0, "")
	}
	if sum.Imported.Sites > 0 {
		p.paragraph("", "Imported memory is in the sums of its owner, and in no other.")
	}
	if sum.Managed.Sites > 0 {
		p.paragraph("", "Managed memory is in no GPU's sum: NVML counts it for no process.")
	}
}

// totalRows returns a header and the memory that each process allocated from CUDA, by device.
// Several kinds on one device have rows of their own below their sum, whose peak is unknown.
func totalRows(p *page, s *ledger.Snapshot) [][]string {
	rows := [][]string{{"process", "memory", "live", "count", "peak", "at"}}
	row := func(name, memory string, list []ledger.Total) {
		var sum ledger.Total
		for i := range list {
			sum.LiveBytes += list[i].LiveBytes
			sum.LiveObjects += list[i].LiveObjects
		}
		peak, after := "", ""
		if len(list) == 1 {
			peak, after = format.Bytes(list[0].PeakBytes), format.Span(report.Minus(list[0].PeakTime, s.Begin))
		}
		rows = append(rows, []string{name, memory, format.Bytes(sum.LiveBytes), humanize.Comma(int64(sum.LiveObjects)), peak, after})
	}
	for i := range s.Processes {
		name := ownerName(s, i, p.firstColumn(len(rows[0])-2))
		list := slices.DeleteFunc(slices.Clone(s.Processes[i].Totals), func(t ledger.Total) bool { return t.Kind == ledger.Tensor })
		slices.SortStableFunc(list, func(a, b ledger.Total) int {
			x, y := order(&a), order(&b)
			return cmp.Or(slices.Compare(x[:], y[:]), cmp.Compare(a.Kind, b.Kind))
		})
		for len(list) > 0 {
			here := run(list, order)
			list = list[len(here):]
			first := &here[0]
			switch at := format.Device(first.Device, first.Kind); {
			case first.Kind != here[len(here)-1].Kind:
				row(name, at, here)
				for len(here) > 0 {
					same := run(here, func(t *ledger.Total) ledger.Kind { return t.Kind })
					here = here[len(same):]
					row("", "  "+format.Kind(same[0].Kind), same)
				}
			case first.Kind == ledger.Device:
				row(name, at, here)
			default:
				row(name, at+" "+format.Kind(first.Kind), here)
			}
		}
	}
	return rows
}

// order sorts by device: GPUs, an unknown one, managed memory, the host, and imported memory, which
// is in no sum.
func order(t *ledger.Total) [2]int32 {
	switch {
	case !report.InSums(t.Kind):
		return [2]int32{4, t.Device}
	case t.Kind.OnHost():
		return [2]int32{3, 0}
	case t.Kind == ledger.Managed:
		return [2]int32{2, t.Device}
	case t.Device < 0:
		return [2]int32{1, 0}
	}
	return [2]int32{0, t.Device}
}

// run returns the beginning of a list with equal keys.
func run[K comparable](list []ledger.Total, key func(*ledger.Total) K) []ledger.Total {
	n := 1
	for n < len(list) && key(&list[n]) == key(&list[0]) {
		n++
	}
	return list[:n]
}

func remarkLines(p *page, s *ledger.Snapshot, st callstack.Stacks) {
	list := report.Remarks(s, st)
	if len(list) > 0 {
		p.line(plain, 0, "")
	}
	for _, text := range list {
		p.paragraph("", text)
	}
}
