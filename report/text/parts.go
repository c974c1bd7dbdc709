// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	partColumns  = 16 // columns of the figures of one process and GPU
	partsNameGap = 29 // columns of the names of parts
)

// usageParts writes what NVML's figure for each process and GPU is made of, as many side by side as
// fit.
func usageParts(p *page, s *ledger.Snapshot, n *notes) {
	if len(s.Processes) == 0 {
		return
	}
	p.line(plain, 0, "")
	mark := n.mark(report.AtBalance)
	list := s.Parts()
	if len(list) == 0 {
		p.paragraph("", format.Join("NVML has no figure for these processes, so nothing shows whether memory is missing here", mark))
		return
	}
	p.text(bold, 0, format.Join("Where the GPU's bytes are, as the driver counts them", mark))
	for len(list) > 0 {
		k := min(max((p.width-partsNameGap)/partColumns, 1), len(list))
		p.line(plain, 0, "")
		partBlock(p, s, list[:k])
		list = list[k:]
	}
}

// partBlock writes parts side by side, without rows of zeros.
func partBlock(p *page, s *ledger.Snapshot, list []ledger.Part) {
	row := func(style Style, name string, always bool, cell func(x *ledger.Part) string) {
		var line strings.Builder
		first := partsNameGap
		if p.width < first+partColumns { // there is one part
			if text := cell(&list[0]); always || text != "" && text != format.Bytes(0) {
				p.pair(style, name, text)
			}
			return
		}
		line.WriteString(format.Pad(format.Cut(name, first-1), first))
		some := always
		for i := range list {
			text := cell(&list[i])
			some = some || text != "" && text != format.Bytes(0)
			line.WriteString(format.Pad(format.Cut(text, partColumns-1), -partColumns))
		}
		if some {
			p.line(style, 0, strings.TrimRight(line.String(), " "))
		}
	}
	row(dim, "process", true, func(x *ledger.Part) string { return narrowName(&s.Processes[x.Process], partColumns-1) })
	row(dim, "", false, func(x *ledger.Part) string { return partRank(&s.Processes[x.Process]) })
	row(dim, "GPU", true, partGPU)
	var processes []int
	for i := range list {
		processes = append(processes, list[i].Process)
	}
	for i := range report.PartTerms {
		r := &report.PartTerms[i]
		row(plain, r.In(s, processes...), false, func(x *ledger.Part) string { return format.Bytes(r.Bytes(x)) })
		if r.Name == report.PlaneName(report.PlaneDriver) {
			row(dim, "  of that, the driver's own", false, func(x *ledger.Part) string { return format.Bytes(x.Internal) })
		}
		if r.Name == report.PlaneName(report.PlaneRounding) {
			row(dim, "  idle in pools, at most", false, func(x *ledger.Part) string { return format.Bytes(report.PartIdle(s, x)) })
		}
	}
	row(plain, "unexplained", true, func(x *ledger.Part) string { return format.Bytes(x.Unexplained) })
	row(bold, "usage", true, func(x *ledger.Part) string { return format.Bytes(report.PartUsage(x)) })
	row(plain, report.BeyondNVML, false, func(x *ledger.Part) string { return format.Bytes(x.Beyond()) })
	row(plain, report.MarkName(report.MarkUnlisted), false, func(x *ledger.Part) string { return format.Bytes(x.Unlisted) })
}

// pair writes a name and, at the right or on the next line, a figure.
func (p *page) pair(s Style, name, figure string) {
	if format.Width(name)+1+format.Width(figure) > p.width {
		p.text(s, 0, name)
		name = ""
	}
	p.line(s, 0, name+format.Pad(format.Cut(figure, p.width), format.Width(name)-p.width))
}

// narrowName returns a process in at most room columns, with its whole pid.
func narrowName(p *ledger.Process, room int) string {
	pid := fmt.Sprintf(" [%d]", p.PID)
	comm := untrusted.Clean(p.Comm)
	if comm == "" {
		comm = "pid"
	}
	return format.Cut(comm, room-len(pid)) + pid
}

func partRank(p *ledger.Process) string {
	switch rank := format.Digits(p.Rank); {
	case p.Replaced:
		return "until its exec"
	case p.End != 0:
		return "ended"
	case rank != "":
		return "rank " + rank
	}
	return ""
}

func partGPU(x *ledger.Part) string {
	short := format.ShortUUID(x.UUID)
	if x.Device < 0 {
		return format.CutFront(short, partColumns-1)
	}
	at := format.Device(x.Device, ledger.Device)
	if format.Width(at)+1+format.Width(short) >= partColumns { // the end of a MIG instance's name identifies it
		return format.CutFront(short, partColumns-1)
	}
	return at + " " + short
}

// systemPart writes the memory that the system allocated on the NUMA nodes of GPUs, by process and
// GPU.
func systemPart(p *page, s *ledger.Snapshot) {
	if len(s.System) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Not in these sums: allocated by the system on the GPU's NUMA node")
	p.line(plain, 0, "")
	for i := range s.System {
		x := &s.System[i]
		figure := format.Bytes(x.Bytes)
		if x.Cut {
			figure = "at least " + figure
		}
		at := format.ShortUUID(untrusted.Clean(x.UUID))
		if x.Device >= 0 {
			at = format.Device(x.Device, ledger.Device) + " " + at
		}
		p.text(plain, 0, format.Process(&s.Processes[x.Process])+" on "+at+": "+figure)
	}
}

const (
	compactRows   = 8 // of a balance in other reports
	compactParts  = 3 // balances there
	explainPieces = 5 // of one row
	wideExplain   = 70
	nameColumn    = 30
)

// WriteExplain writes what the memory of each process and GPU is for. more is what is known of
// one besides the books; nil: nothing.
func WriteExplain(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, more *purpose.More, o report.Options, screen Screen) error {
	p := newPage(screen)
	list := purpose.With(s, st, more)
	for i := range list {
		if i > 0 {
			p.line(plain, 0, "")
		}
		p.balance(s, &list[i], o, len(list[i].Rows), min(explainPieces, o.Limit()))
		p.stepPart(s, stepsOf(s, list[i].Process, o), list[i].Device, "Steps")
		for k, text := range list[i].Notes(s) {
			if k == 0 {
				p.line(plain, 0, "")
			}
			p.paragraph("! ", text)
		}
	}
	if len(list) == 0 {
		p.paragraph("", "No process holds GPU memory at this moment.")
	}
	p.otherSteps(s, list, o)
	return p.writeTo(w)
}

// explainPart writes the first block of other reports: what the memory of the processes with most
// of it is for.
func explainPart(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options, only func(*purpose.Balance) bool) {
	list := purpose.Of(s, st)
	shown := 0
	for _, i := range purpose.BySize(list) {
		b := &list[i]
		if !only(b) || !b.Divided() {
			continue
		}
		if shown++; shown > compactParts {
			p.text(dim, 0, "more processes: vramprof explain")
			return
		}
		p.line(plain, 0, "")
		p.balance(s, b, o, compactRows, 0)
		p.stepLine(s, b, o)
	}
}

// balance writes a bar and a table, with at most so many rows and pieces of each.
func (p *page) balance(s *ledger.Snapshot, b *purpose.Balance, o report.Options, most, pieces int) {
	title := "What it is for:"
	if o.Peak != nil {
		title = "What it was for at " + format.Span(report.Minus(s.End, s.Begin)) + ":"
	} else if s.Processes[b.Process].End != 0 { // at its peak
		title = "What it was for:"
	}
	p.list(bold, 0, " ", title, b.Title(s)+",", format.SignedBytes(b.Bytes))
	if bar := b.Bar(p.width - 2); bar != "" {
		p.line(plain, 0, "["+bar+"]")
	}
	rows, more, rest := b.Largest(most)
	for i := range rows {
		r := &rows[i]
		p.purposeRow(string(r.Kind.Letter()), r.Name(), r.Bytes, b.Bytes, r.Known())
		if pieces > 0 && 100*r.Bytes >= b.Bytes {
			keptRow(p, r)
		}
		p.pieces(r, pieces)
	}
	if more > 0 {
		p.purposeRow("+", format.Count(uint64(more), "more row"), rest, b.Bytes, "")
	}
}

// purposeRow writes "A activations      9.80 GiB  42%  holders".
func (p *page) purposeRow(sign, name string, bytes, all int64, known string) {
	figure, percent := format.SignedBytes(bytes), share(bytes, all)
	column := min(nameColumn, p.width-22)
	line := sign + " " + format.Pad(format.Cut(name, column), column) + format.Pad(figure, -10)
	if percent != "" {
		line += format.Pad(percent, -6)
	}
	if p.width >= wideExplain && known != "" {
		line += "  by " + known
	}
	p.line(plain, 0, line)
}

// keptRow writes who keeps a row below it, in at most two lines. KV caches name their holders as
// their parts.
func keptRow(p *page, r *purpose.Row) {
	const most = 2
	if r.Kind == purpose.KVCache {
		return
	}
	lines := pieces(r.KeptText(), p.width-4)
	for i, text := range lines[:min(len(lines), most)] {
		if i == most-1 {
			text = format.Cut(strings.Join(lines[i:], ""), p.width-4)
		}
		if text != "" {
			p.line(dim, 4, strings.TrimLeft(text, " "))
		}
	}
}

// pieces writes the largest parts of a row.
func (p *page) pieces(r *purpose.Row, most int) {
	if most == 0 || len(r.Pieces) == 1 && !r.Pieces[0].HasName() {
		return
	}
	column := min(nameColumn+14, p.width-14)
	line := func(name string, bytes uint64) {
		p.line(dim, 4, format.Pad(format.Cut(name, column), column)+format.Pad(format.Bytes(bytes), -10))
	}
	var rest uint64
	for i := range r.Pieces {
		x := &r.Pieces[i]
		if i >= most {
			rest += x.Bytes
			continue
		}
		line(x.Name(r.Kind), x.Bytes)
	}
	if rest > 0 {
		line(format.Count(uint64(len(r.Pieces)-most), "more part"), rest)
	}
}

// share returns "42%", "<1%"; "" without a sum.
func share(part, all int64) string {
	if all <= 0 {
		return ""
	}
	percent := 100 * float64(part) / float64(all)
	switch {
	case part > 0 && percent < 1:
		return "<1%"
	case percent > -1 && part <= 0:
		return ""
	}
	return fmt.Sprintf("%.0f%%", percent)
}
