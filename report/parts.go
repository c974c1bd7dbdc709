// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// partUsage is the sum: what NVML reports.
func partUsage(x *ledger.Part) uint64 {
	return x.Tensors + x.Cached + x.Driver + x.OlderAllocated + x.OlderCached + x.Foreign + x.Unplaced + uint64(x.Unexplained)
}

// partIdle is how much of what is unexplained pools hold at most.
func partIdle(s *ledger.Snapshot, x *ledger.Part) uint64 {
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == x.Process && b.UUID == x.UUID && x.Unexplained > 0 {
			return min(b.Idle, uint64(x.Unexplained))
		}
	}
	return 0
}

// partRow is a part of usage in words.
type partRow struct {
	name string
	of   func(*ledger.Part) uint64
}

var partRows = []partRow{
	{"tensors", func(x *ledger.Part) uint64 { return x.Tensors }},
	{"PyTorch cache", func(x *ledger.Part) uint64 { return x.Cached }},
	{"other CUDA allocations", func(x *ledger.Part) uint64 { return x.Driver }},
	{"tensors before attach", func(x *ledger.Part) uint64 { return x.OlderAllocated }},
	{"PyTorch cache before attach", func(x *ledger.Part) uint64 { return x.OlderCached }},
	{"context, other before attach", func(x *ledger.Part) uint64 { return x.Foreign }},
	{"allocations, GPU unknown", func(x *ledger.Part) uint64 { return x.Unplaced }},
}

// partName calls driver allocations "other" beside those of PyTorch only.
func partName(r *partRow, list []ledger.Part) string {
	for i := range list {
		if x := &list[i]; x.Tensors != 0 || x.Cached != 0 || x.OlderAllocated != 0 || x.OlderCached != 0 {
			return r.name
		}
	}
	return strings.TrimPrefix(r.name, "other ")
}

// partText is "python3 [42] on cuda:0 GPU-a: NVML usage 6.0 GiB = tensors 4.1 GiB + PyTorch cache
// 1.6 GiB + context, other before attach 310 MiB + unexplained 2.0 MiB".
func partText(s *ledger.Snapshot, x *ledger.Part) string {
	at := untrusted.Clean(x.UUID)
	if x.Device >= 0 {
		at = words(DeviceName(x.Device, ledger.Device), at)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: NVML usage %s =", processName(&s.Processes[x.Process]), at, BytesText(partUsage(x)))
	sign := " "
	for i := range partRows {
		r := &partRows[i]
		if n := r.of(x); n != 0 {
			b.WriteString(sign + partName(r, []ledger.Part{*x}) + " " + BytesText(n))
			sign = " + "
		}
	}
	switch {
	case x.Unexplained < 0:
		b.WriteString(" - unexplained " + BytesText(-uint64(x.Unexplained)))
	default:
		b.WriteString(sign + "unexplained " + BytesText(uint64(x.Unexplained)))
	}
	if idle := partIdle(s, x); idle > 0 {
		fmt.Fprintf(&b, ", of which up to %s idle in pools", BytesText(idle))
	}
	return b.String()
}

const (
	partColumns  = 16 // of the figures of one process and GPU
	partsNameGap = 29 // columns of the names of parts
)

// usageParts writes what NVML's figure for each process and GPU is made of, as many side by side as fit.
func usageParts(p *page, s *ledger.Snapshot, n *notes) {
	p.line(plain, 0, "")
	mark := n.mark(atBalance)
	list := s.Parts()
	if len(list) == 0 {
		p.paragraph("", words("No reconciliation: the driver reported no memory use of these processes", mark))
		return
	}
	p.text(bold, 0, words("Where the GPU's bytes are, as the driver counts them", mark))
	for len(list) > 0 {
		k := min(max((p.width-partsNameGap)/partColumns, 1), len(list))
		p.line(plain, 0, "")
		partBlock(p, s, list[:k])
		list = list[k:]
	}
}

// partBlock writes parts side by side; a row of zeros is left out.
func partBlock(p *page, s *ledger.Snapshot, list []ledger.Part) {
	row := func(style style, name string, always bool, cell func(x *ledger.Part) string) {
		var line strings.Builder
		first := partsNameGap
		if p.width < first+partColumns { // there is one part
			if text := cell(&list[0]); always || text != "" && text != BytesText(0) {
				p.pair(style, name, text)
			}
			return
		}
		line.WriteString(pad(fit(name, first-1), first))
		some := always
		for i := range list {
			text := cell(&list[i])
			some = some || text != "" && text != BytesText(0)
			line.WriteString(pad(fit(text, partColumns-1), -partColumns))
		}
		if some {
			p.line(style, 0, strings.TrimRight(line.String(), " "))
		}
	}
	row(dim, "process", true, func(x *ledger.Part) string { return narrowName(&s.Processes[x.Process], partColumns-1) })
	row(dim, "", false, func(x *ledger.Part) string { return partRank(&s.Processes[x.Process]) })
	row(dim, "GPU", true, partGPU)
	for i := range partRows {
		r := &partRows[i]
		row(plain, partName(r, list), false, func(x *ledger.Part) string { return BytesText(r.of(x)) })
	}
	row(plain, "unexplained", true, func(x *ledger.Part) string { return signedBytes(x.Unexplained) })
	row(dim, "  idle in pools, up to", false, func(x *ledger.Part) string { return BytesText(partIdle(s, x)) })
	row(bold, "usage", true, func(x *ledger.Part) string { return BytesText(partUsage(x)) })
}

// pair writes a name, and at the right a figure, below the name where there is no room beside it.
func (p *page) pair(s style, name, figure string) {
	if columns(name)+1+columns(figure) > p.width {
		p.text(s, 0, name)
		name = ""
	}
	p.line(s, 0, name+pad(fit(figure, p.width), columns(name)-p.width))
}

// narrowName fits a process into so many columns, its pid whole.
func narrowName(p *ledger.Process, room int) string {
	pid := fmt.Sprintf(" [%d]", p.PID)
	comm := untrusted.Clean(p.Comm)
	if comm == "" {
		comm = "pid"
	}
	return fit(comm, room-len(pid)) + pid
}

func partRank(p *ledger.Process) string {
	switch rank := digits(p.Rank); {
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
	short := shortUUID(x.UUID)
	if x.Device < 0 {
		return fitEnd(short, partColumns-1)
	}
	at := DeviceName(x.Device, ledger.Device)
	if columns(at)+1+columns(short) >= partColumns { // of a MIG instance the end tells more
		return fitEnd(short, partColumns-1)
	}
	return at + " " + short
}
