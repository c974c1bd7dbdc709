// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// leastHolder is the least columns of a holder beside its figures; else it has a line of its own.
const leastHolder = 40

// WriteHolders writes who keeps the tensors of a process: a line for each holder, and what grew
// between two walks.
func WriteHolders(w io.Writer, h *report.Holders, o report.Options, screen Screen) error {
	p := newPage(screen)
	lines := h.Lines()
	p.holdersHead(h, lines)
	p.line(plain, 0, "")
	if h.Before != nil {
		grown, doubtful := h.Grown()
		p.grown(grown, nil, report.UnclearText(doubtful, h.Walks()), doubtful, h.Between(), o)
	}
	p.text(bold, 0, "Who keeps it")
	p.line(plain, 0, "")
	p.holderLines(lines, o.Limit())
	p.waste(h.Waste(), "", o.Limit())
	p.holdersFoot(h)
	return p.writeTo(w)
}

// holdersHead writes what was read, and the sum of the lines.
func (p *page) holdersHead(h *report.Holders, lines []report.HolderLine) {
	r := h.Result
	p.text(plain, 0, fmt.Sprintf("%s [%d]: Python %s, %s, %s, read in %s", untrusted.Clean(h.Comm), h.PID, untrusted.Clean(r.Python),
		format.Count(uint64(r.Threads), "thread"), format.Count(uint64(r.Objects), "object"), r.Times.Total.Round(time.Millisecond)))
	p.text(plain, 0, heldText(report.SumHolders(lines), h.Device))
}

// holdersFoot writes what could not be read.
func (p *page) holdersFoot(h *report.Holders) {
	if problems := h.HolderProblems(); len(problems) > 0 {
		p.line(plain, 0, "")
		for _, text := range problems {
			p.paragraph("! ", untrusted.Clean(text))
		}
	}
}

// heldText is "103 MiB of tensors in 812 storages, 97.2% held by Python".
func heldText(sum report.HoldersSum, device string) string {
	if sum.Storages == 0 {
		return "No tensors on " + cmp.Or(device, "a GPU (see --device cpu)")
	}
	return fmt.Sprintf("%s of tensors in %s, %s held by Python", format.Bytes(sum.Bytes), format.Count(sum.Storages, "storage"), format.Share(sum.Found, sum.Bytes))
}

// holderLines writes the largest lines, and the sum of the others.
func (p *page) holderLines(lines []report.HolderLine, limit int) {
	for i := range lines[:min(len(lines), limit)] {
		l, count := &lines[i], ""
		if l.Storages > 0 { // memory of PyTorch's allocator can have none
			count = humanize.Comma(int64(l.Storages))
		}
		p.holder(fmt.Sprintf("%s  %7s  %-6s", format.Pad(format.Bytes(l.Bytes), 8), count, l.On), l, report.DetailText(l))
	}
	p.moreHolders(lines[min(len(lines), limit):])
}

// moreHolders writes the sum of lines that are not shown.
func (p *page) moreHolders(rest []report.HolderLine) {
	if len(rest) > 0 {
		p.line(plain, 0, "")
		p.text(plain, 0, fmt.Sprintf("%s with %s", format.Count(uint64(len(rest)), "more holder"), format.Bytes(report.SumHolders(rest).Bytes)))
	}
}

// grown writes what grew between two walks, how much of the rest comes and goes, and what is
// unclear, with the lines of that.
func (p *page) grown(list, passing []report.GrownLine, unclear string, doubtful []report.GrownLine, between time.Duration, o report.Options) {
	between = between.Round(100 * time.Millisecond)
	switch {
	case len(list) > 0:
		p.text(bold, 0, fmt.Sprintf("Grew in %s", between))
		p.line(plain, 0, "")
	case unclear != "":
		p.text(bold, 0, fmt.Sprintf("Nothing grew for certain in %s", between))
	default:
		p.text(bold, 0, fmt.Sprintf("Nothing grew in %s", between))
	}
	for i := range list[:min(len(list), o.Limit())] {
		g := &list[i]
		var more []string
		if g.By.Entries > 0 {
			more = append(more, "+"+format.Count(uint64(g.By.Entries), "entry"))
		}
		if text := report.DetailText(&g.HolderLine); text != "" {
			more = append(more, text)
		}
		rate := format.SignedBytes(g.PerMinute) + "/min"
		p.holder(fmt.Sprintf("%s  %7s  %-6s", format.Pad(rate, 12), fmt.Sprintf("%+d", g.By.Storages), g.On), &g.HolderLine, strings.Join(more, ", "), p.once(g.Remedy()))
	}
	p.passing(passing)
	if unclear != "" {
		p.text(dim, 0, unclear)
	}
	for i := range doubtful[:min(len(doubtful), o.Limit())] {
		if i == 0 {
			p.line(plain, 0, "")
		}
		g := &doubtful[i]
		p.holder(fmt.Sprintf("%s  %7s  %-6s", format.Pad(format.SignedBytes(g.By.Bytes), 12), fmt.Sprintf("%+d", g.By.Storages), g.On), &report.HolderLine{Held: ledger.Held{Holder: ledger.Holder{Path: g.Path}}})
	}
	p.line(plain, 0, "")
}

// passing writes how much more holders keep of what comes and goes.
func (p *page) passing(list []report.GrownLine) {
	if len(list) == 0 {
		return
	}
	sum := int64(0)
	for i := range list {
		sum += list[i].By.Bytes
	}
	p.text(dim, 0, fmt.Sprintf("%s had %s more, of memory that comes and goes, as in a step", format.Count(uint64(len(list)), "holder"), format.Bytes(uint64(sum))))
}

// holder writes figures and a holder beside them, or below them where there is no room, and then
// what is known of it, a paragraph each.
func (p *page) holder(figures string, l *report.HolderLine, more ...string) {
	indent := format.Width(figures) + 2
	if p.width-indent < leastHolder {
		indent = siteIndent
		p.line(plain, 0, figures)
		for _, piece := range pieces(l.Path, p.width-indent) {
			p.line(plain, indent, strings.TrimLeft(piece, " "))
		}
	} else {
		for i, piece := range pieces(l.Path, p.width-indent) {
			if i == 0 {
				p.line(plain, 0, figures+"  "+piece)
			} else {
				p.line(plain, indent, strings.TrimLeft(piece, " "))
			}
		}
	}
	for _, text := range more {
		if text != "" {
			p.text(dim, indent, text)
		}
	}
	for _, also := range l.Also {
		for _, piece := range pieces("also: "+also, p.width-indent) {
			p.line(dim, indent, strings.TrimLeft(piece, " "))
		}
	}
}

// pieces breaks a path into parts of at most width columns: a path is never cut, since its end
// names the tensor.
func pieces(path string, width int) []string {
	var list []string
	for format.Width(path) > width && width > 0 {
		cut := 0
		for i := range path {
			if format.Width(path[:i]) > width {
				break
			}
			cut = i
		}
		at := strings.LastIndexAny(path[:cut], ".[ ")
		if open := strings.LastIndex(path[:cut], " ("); open > cut/2 && open < at && !strings.Contains(path[open:at], ")") {
			at = open // "(train.py:154)" stays whole
		}
		if at > cut/2 {
			cut = at
		}
		if cut == 0 {
			break
		}
		list, path = append(list, path[:cut]), path[cut:]
	}
	return append(list, path)
}

// leastWaste is the least sum, in bytes, that is worth a block of a report.
const leastWaste = 1 << 20

// waste writes what could be freed, with its sum; of: whose it is, or "".
func (p *page) waste(list []report.WasteLine, of string, limit int) {
	list, copies := report.DivideWaste(list)
	defer p.copies(copies, of, limit)
	sum := report.SumWaste(list)
	if sum < leastWaste {
		return
	}
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "Could be freed:", format.Bytes(sum), of)
	p.line(plain, 0, "")
	for i := range list[:min(len(list), limit)] {
		x := &list[i]
		figures := fmt.Sprintf("%s  %7s  %-6s", format.Pad(format.Bytes(x.Bytes), 8), humanize.Comma(int64(x.Storages)), x.On)
		p.holder(figures, &report.HolderLine{Held: ledger.Held{Holder: ledger.Holder{Path: x.Path}}}, p.once(x.Text))
	}
	if more := len(list) - limit; more > 0 {
		p.text(plain, 0, format.Count(uint64(more), "more line")+" with "+format.Bytes(report.SumWaste(list[limit:])))
	}
}

// copies writes which models are there more than once.
func (p *page) copies(list []report.WasteLine, of string, limit int) {
	list = slices.DeleteFunc(list, func(x report.WasteLine) bool { return x.Whole < leastWaste })
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "Copies of a model:", of)
	p.line(plain, 0, "")
	for i := range list[:min(len(list), limit)] {
		x := &list[i]
		figures := fmt.Sprintf("%s  %7s  %-6s", format.Pad(format.Bytes(x.Whole), 8), humanize.Comma(int64(x.Storages)), x.On)
		p.holder(figures, &report.HolderLine{Held: ledger.Held{Holder: ledger.Holder{Path: x.Path}}}, p.once(x.Text))
	}
}

// wasteParts writes what could be freed in each process that was walked.
func wasteParts(p *page, s *ledger.Snapshot, limit int) {
	for i := range s.Processes {
		p.waste(report.WasteOf(s, i), "in "+format.Process(&s.Processes[i]), limit)
	}
}
