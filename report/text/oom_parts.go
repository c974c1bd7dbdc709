// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func (v *oomCase) head(p *page, n *notes) {
	name := format.Process(&ledger.Process{PID: v.o.PID, Comm: v.o.Comm})
	p.list(bold, 0, " ", name, v.o.Text())
	wall := v.s.Wall.Add(-time.Duration(report.Minus(v.s.End, v.o.Time)))
	at := wall.UTC().Format("2006-01-02 15:04:05 UTC")
	if v.s.Host != "" {
		at += " on " + untrusted.Clean(v.s.Host)
	}
	parts := []string{at, format.Join("traced for "+format.Span(report.Minus(v.o.Time, v.s.Begin)), n.mark(report.AtTitle))}
	if v.process >= 0 {
		parts = append(parts, report.WorkloadText(v.s.Processes[v.process].Workload)...)
	}
	p.list(plain, 0, ", ", parts...)
}

// asker writes which line of the user's code asked for memory, and the whole stack.
func (v *oomCase) asker(p *page, st callstack.Stacks, o report.Options) {
	stack := frames.Visible(st, v.o.Stack, v.o.Caller())
	own := frames.Headline(stack)
	p.line(plain, 0, "")
	p.headLine(bold, v.o.SizeText()+" wanted by", stack[own])
	p.list(plain, siteIndent, " ", "from "+v.o.Caller())
	p.folded(stack, own) // the profile beside the record has all frames
}

// gpuPart writes NVML's reading: how full the GPU is, and which processes use it.
func (v *oomCase) gpuPart(p *page, n *notes, top int) {
	if v.o.Kind.OnHost() {
		return
	}
	p.line(plain, 0, "")
	if v.gpu == nil {
		p.paragraph("", format.Join("No figures of the GPU: NVML gave no reading of it, or the GPU is unknown", n.mark(report.AtBalance)))
		return
	}
	kind := "GPU"
	if v.gpu.Parent != "" {
		kind = "MIG instance of GPU"
	}
	p.list(bold, 0, ", ", fmt.Sprintf("%s %d: %s", kind, v.gpu.Index, untrusted.Clean(v.gpu.Name)), format.ShortUUID(v.gpu.UUID),
		format.Join(fmt.Sprintf("%s of %s free", format.Bytes(v.free()), format.Bytes(v.gpu.Total)), n.mark(report.AtBalance)))
	p.paragraph("", v.readText())
	p.line(plain, 0, "")
	rows := [][]string{{"process", "", "memory"}}
	row := func(name, what string, bytes uint64) { rows = append(rows, []string{name, what, format.Bytes(bytes)}) }
	row(format.Process(&ledger.Process{PID: v.o.PID, Comm: v.o.Comm}), "asked for more", v.own)
	for i := range v.users[:min(len(v.users), top)] {
		what := "another process"
		if v.users[i].process < 0 {
			what = "not traced"
		}
		row(v.userName(&v.users[i], p.firstColumn(1)), what, v.users[i].bytes)
	}
	if len(v.users) > top {
		var sum uint64
		for _, u := range v.users[top:] {
			sum += u.bytes
		}
		row(format.Count(uint64(len(v.users)-top), "more process"), "", sum)
	}
	if rest := report.Minus(v.used, v.own+v.others()); rest > 0 {
		row("the driver, and processes that NVML omits", "", rest)
	}
	p.table(rows)
}

// readText returns the age of the figures.
func (v *oomCase) readText() string {
	switch {
	case v.o.Read == 0:
		return "NVML gave no reading after the error: these are its last figures, and only of traced processes."
	case v.left && v.own > 0:
		return fmt.Sprintf("NVML was read %s after the error, when the process had left the GPU: what it had used before is added.", format.Span(report.Minus(v.o.Read, v.o.Time)))
	}
	return fmt.Sprintf("NVML was read %s after the error.", format.Span(report.Minus(v.o.Read, v.o.Time)))
}

func (v *oomCase) userName(u *oomUser, room int) string {
	if u.process < 0 {
		return u.name
	}
	return ownerName(v.s, u.process, room)
}

// allocatorPart writes the state of PyTorch's allocator at the error, and its free runs a moment
// later.
func (v *oomCase) allocatorPart(p *page) {
	if !v.o.FromTorch() {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "PyTorch's allocator on "+format.Device(v.o.Device, ledger.Device))
	p.line(plain, 0, "")
	rows := [][]string{{"", "", "bytes"}}
	row := func(name string, bytes uint64) { rows = append(rows, []string{name, "", format.Bytes(bytes)}) }
	row("reserved from the driver", v.o.Reserved)
	row("  allocated as tensors", v.o.Allocated)
	row("  cached", v.cached())
	if t := v.tensors; t != nil {
		row("largest free run in the cache", t.LargestFree)
		row("highest allocated, "+format.Span(report.Minus(v.o.Time, t.PeakTime))+" before", max(t.Peak, v.o.Allocated))
		if t.Untraced > 0 {
			row("tensors not traced", t.Untraced)
		}
		if older := t.Older - t.Untraced; older > 0 {
			row("tensors before the attach", older)
		}
	}
	p.table(rows)
}

// growthPart writes the growth of the process in the last minutes.
func (v *oomCase) growthPart(p *page) {
	if v.process < 0 {
		return
	}
	var driver, tensors []uint64
	for i := range v.s.Sites {
		x := &v.s.Sites[i]
		switch {
		case x.Process != v.process || !report.InSums(x.Kind) || x.Kind == ledger.Managed || !v.here(x.Process, x.Device, report.GPUUUID(v.s, x.Process, x.Device, x.Kind), report.IsOnHost(x)):
		case x.Kind == ledger.Tensor:
			tensors = addHistory(tensors, x.History)
		default:
			driver = addHistory(driver, x.History)
		}
	}
	if v.recentText(v.process, driver) == "" && v.recentText(v.process, tensors) == "" {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Growth of "+format.Process(&v.s.Processes[v.process]))
	p.line(plain, 0, "")
	for _, g := range []struct {
		name    string
		history []uint64
	}{{"taken from the driver", driver}, {"live tensors", tensors}} {
		if text := v.recentText(v.process, g.history); text != "" {
			p.list(plain, 0, " ", g.name+":", text)
			p.list(plain, siteIndent, " ", sparkline(g.history, min(ledger.HistoryLen, p.width-siteIndent)))
		}
	}
}

func addHistory(sum, history []uint64) []uint64 {
	if sum == nil {
		return append(sum, history...)
	}
	for i := range min(len(sum), len(history)) {
		sum[i] += history[i]
	}
	return sum
}

// recentMinutes is the time over which growth is shown; in a short session it is the second half.
const recentMinutes = 5 * time.Minute

// recentText returns "+1.20 GiB in the last 4m41s (+262 MiB/min)", "steady", or "" if it is
// unknown. It has no rate if low-water marks did not rise as well.
func (v *oomCase) recentText(process int, history []uint64) string {
	n := len(history)
	session := v.s.End - v.s.Since(process)
	if n < 2 || session < uint64(n) {
		return ""
	}
	step := session / uint64(n)
	back := min(max(int(uint64(recentMinutes)/step), 1), n/2)
	over := step * uint64(back)
	if over < leastGrowth {
		return "" // a sample of a step, no growth
	}
	growth := int64(history[n-1] - history[n-1-back])
	low := int64(slices.Min(history[n-back:]) - slices.Min(history[n-2*back:n-back]))
	if growth != 0 && (low > 0 != (growth > 0) || 2*report.Magnitude(low) < report.Magnitude(growth)) { // the phase of a step, or one allocation
		return format.Difference(growth) + " in the last " + format.Span(over)
	}
	return growthIn(growth, over)
}
