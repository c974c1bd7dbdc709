// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// processView is the view of processes.
type processView struct{ table[process] }

func (v *processView) fill(x *scene) {
	b := x.b
	list := v.rows[:0]
	for i := range b.processes {
		p := &b.processes[i]
		if x.gpu != nil && (p.gpu < 0 || b.gpus[p.gpu].key != *x.gpu) {
			continue
		}
		if x.filter.passes(p.command, p.pid, p.user, p.job, p.class.String()) || x.hasLine(p) {
			list = append(list, *p)
		}
	}
	list = sortRows(list, processColumns(b), v.by, v.reversed)
	v.rows = list
	slices.SortStableFunc(list, func(a, b process) int { return btoi(a.ended != 0) - btoi(b.ended != 0) })
}

// hasLine reports whether the filter matches a line of code of a process.
func (x *scene) hasLine(p *process) bool {
	b := x.b
	for i := range b.lines {
		if l := &b.lines[i]; l.process == p.index {
			if f := &b.frames[l.frame]; !f.Mark && x.filter.passes(f.Function, f.File) {
				return true
			}
		}
	}
	return false
}

func (v *processView) key(_ *scene, i int) any { return v.rows[i].key }

func (*processView) names(x *scene) []string { return namesOf(fit(processColumns(x.b), x.size.width)) }

// about returns "on GPU 1".
func (*processView) about(x *scene) (parts []string) {
	if x.b == nil || x.gpu == nil {
		return nil
	}
	for i := range x.b.gpus {
		if x.b.gpus[i].key == *x.gpu {
			parts = append(parts, "on GPU "+x.b.gpus[i].label)
		}
	}
	return parts
}

func (*processView) keys() []key.Binding { return []key.Binding{short(bound.open, "lines")} }

// open returns the lines of the process.
func (v *processView) open(x *scene) (target, bool) {
	rowsOf(v, x)
	p := v.atCursor()
	if p == nil {
		return target{}, false
	}
	return target{view: viewLines, choice: choice{p.key.process, x.gpu}}, true
}

// leastPreview is the least height of the lines below the processes.
const leastPreview = 5

// draw draws the table of processes, with the caches and the lines of the one at the cursor below,
// if they have room.
func (v *processView) draw(x *scene) []string {
	height := x.size.bodyHeight()
	n := rowsOf(v, x)
	if n == 0 {
		return append([]string{"", x.nothing("no traced process uses CUDA")}, othersOf(x, height-2, false)...)
	}
	columns := processColumns(x.b)
	preview := height - n - 2 // a blank line and the header
	if preview < leastPreview {
		return v.drawRows(x, columns, height)
	}
	list := v.drawRows(x, columns, n+1)
	for _, rows := range []func(*scene, int, bool) []string{sharersOf, othersOf} {
		list = append(list, rows(x, min(height-len(list)-leastPreview, mostOthers+2), false)...)
	}
	p := v.atCursor()
	room := height - len(list) - leastPreview
	caches := cachesOf(x, p)
	if room <= len(caches) {
		caches = nil
	}
	if len(caches) > 0 {
		caches = append([]string{""}, caches...)
		room -= len(caches)
	}
	if p != nil && room >= leastPurpose {
		list = append(list, purposeOf(x, p, min(room, mostPurpose))...)
	}
	list = append(list, caches...)
	return append(list, previewOf(x, p, height-len(list))...)
}

// Heights of what the memory of a process is for: a blank line, a heading, a bar and rows.
const leastPurpose, mostPurpose = 3 + leastRows, 11

// leastRows is the least number of rows, which what is known of the steps leaves free.
const leastRows = 3

// purposeOf shows what the memory of a process on its GPU is for.
func purposeOf(x *scene, p *process, height int) []string {
	if p.gpu < 0 || p.ended != 0 || p.index >= len(x.b.Snapshot.Processes) {
		return nil
	}
	width := x.size.width
	for _, b := range purpose.OfProcess(x.b.Snapshot, x.b.Stacks, p.index) {
		if b.UUID != x.b.gpus[p.gpu].key.uuid || !b.Divided() {
			continue
		}
		head := "What it is for: " + tidy(b.Title(x.b.Snapshot)) + ", " + format.SignedBytes(b.Bytes)
		if format.Width(head) > width {
			head = "What it is for: " + format.SignedBytes(b.Bytes) + " of " + processName(x.b, p.index, maxLabel)
		}
		list := []string{"", x.p.paint(bold, format.CutWords(head, width)), format.Cut("["+b.Bar(width-2)+"]", width)}
		for _, text := range stepsOf(x.b.Snapshot, p.index, b.Device, x.b.Steps) {
			if lines := wrap("", text, width); len(list)+len(lines)+leastRows <= height {
				list = append(list, lines...)
			}
		}
		rows, more, rest := b.Largest(height - len(list))
		line := func(sign, name string, bytes int64) {
			list = append(list, format.Cut(sign+" "+format.Pad(format.Cut(tidy(name), purposeName), purposeName)+format.Pad(format.SignedBytes(bytes), -10), width))
		}
		for i := range rows {
			line(string(rows[i].Kind.Letter()), rows[i].Name(), rows[i].Bytes)
		}
		if more > 0 {
			line("+", format.Count(uint64(more), "more row"), rest)
		}
		return list
	}
	return nil
}

// stepsOf returns "Now in step 12 of 24" and what is known of the steps; nothing where that is
// unknown.
func stepsOf(s *ledger.Snapshot, process int, device int32, found *steps.Session) (list []string) {
	p := &s.Processes[process]
	x := found.Of(p.PID, p.Begin, p.End)
	if x == nil {
		return nil
	}
	if at, ok := x.Now(s.End, p.End == 0); ok {
		list = append(list, "Now "+x.PlaceText(at))
	}
	text := "Steps: " + x.Brief()
	if grows := x.GrowthText(device); grows != "" {
		text += ", " + grows
	}
	list = append(list, text)
	if peak := x.PeakText(device); peak != "" {
		list = append(list, "P"+peak[1:])
	}
	return list
}

const purposeName = 30 // columns of the name of a purpose

// previewOf shows the largest lines of a process.
func previewOf(x *scene, p *process, height int) []string {
	inside := *x
	inside.filter, inside.choice = filter{}, choice{process: p.key.process}
	lines := lineView{table: table[lineRow]{listState: listState{by: "own"}}}
	head := fmt.Sprintf("Lines of %s (Enter shows all)", processName(x.b, p.index, maxLabel))
	if p.ended != 0 {
		head = fmt.Sprintf("Lines of %s when it ended (Enter shows all)", processName(x.b, p.index, maxLabel))
	}
	width := x.size.width
	head = x.p.paint(bold, format.Cut(head, width))
	if rowsOf(&lines, &inside) == 0 {
		return []string{"", head, x.p.paint(dim, format.Cut("  no memory", width))}
	}
	rows := lines.rows[:min(len(lines.rows), max(height-3, 0))] // a blank line and two headers
	return append([]string{"", head}, tableOf(lines.columns(&inside), rows, lines.by, &inside)...)
}

// maxCaches is how many allocators of a process are shown below the processes.
const maxCaches = 2

// cachesOf returns what PyTorch's allocators of a process have on the chosen GPU, or on all: what
// their cache is made of, and their own counters. The largest caches come first.
func cachesOf(x *scene, p *process) (lines []string) {
	s := x.b.Snapshot
	var list []*ledger.AllocatorCache
	for i := range s.Caches {
		c := &s.Caches[i]
		here := x.gpu == nil || report.GPUUUID(s, c.Process, c.Index, ledger.Tensor) == x.gpu.uuid
		if c.Process == p.index && c.Reserved > 0 && here {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.AllocatorCache) int { return cmp.Compare(b.Cached, a.Cached) })
	width := x.size.width
	for _, c := range list[:min(len(list), maxCaches)] {
		device, bytes := format.Device(c.Index, ledger.Tensor), format.Bytes(c.Cached)+" of "+format.Bytes(c.Reserved)
		head := "PyTorch's cache on " + device + ": " + bytes + " reserved"
		if format.Width(head) > width {
			head = "Cache on " + device + ": " + bytes
		}
		lines = append(lines, x.p.paint(bold, format.CutWords(head, width)))
		if text := report.CacheText(c); text != "" {
			lines = append(lines, wrap("  ", text, width)...)
		}
		for _, text := range report.AllocatorTexts(s, c) {
			lines = append(lines, wrap("  ", tidy(text), width)...)
		}
	}
	if n := len(list) - maxCaches; n > 0 {
		lines = append(lines, format.Cut("  "+format.Count(uint64(n), "more allocator"), width))
	}
	return lines
}

// labelOf returns the label of a GPU, "" if it is not known.
func (b *books) labelOf(key gpuKey) string {
	if n := slices.IndexFunc(b.gpus, func(g gpu) bool { return g.key == key }); n >= 0 {
		return b.gpus[n].label
	}
	return ""
}

// Other is memory of a GPU, or a process that keeps one, as NVML and the kernel show it. Its texts
// are untrusted.
type Other struct {
	PID     uint32 // 0: no process, as of what the driver keeps
	GPU     int    // NVML index; -1: on none that NVML lists it for
	Bytes   uint64 // as NVML reports; 0: it lists none
	Command string
	Note    string // how it keeps the GPU; "": nothing to say
	Shares  string // the part of Note on memory that others have too; "": it shares none
}

// mostOthers is how many of them are shown below the processes of a screen.
const mostOthers = 6

// othersOf returns rows on what is not traced, below a blank line and a heading, in at most height
// lines: memory without a process first, then the largest. Processes that are traced are left out.
func othersOf(x *scene, height int, notes bool) []string {
	if x.b == nil || height < 3 {
		return nil
	}
	var list []Other
	for _, o := range x.b.Others {
		if !x.b.traces(o.PID) && (x.gpu == nil || o.GPU < 0 || x.b.labelOf(*x.gpu) == strconv.Itoa(o.GPU)) {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Other) int {
		if a.PID == 0 || b.PID == 0 {
			return btoi(a.PID != 0) - btoi(b.PID != 0)
		}
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	width := x.size.width
	lines := []string{"", x.p.paint(bold, format.Cut("Not traced, by NVML and the kernel", width))}
	for i := range list {
		if room := height - len(lines); room <= 1 && i < len(list)-1 {
			return append(lines, format.Cut("  "+format.Count(uint64(len(list)-i), "more row"), width))
		}
		o := &list[i]
		gpu, pid, used := "", "", ""
		if o.GPU >= 0 {
			gpu, used = strconv.Itoa(o.GPU), format.Bytes(o.Bytes)
		}
		if o.PID != 0 {
			pid = strconv.FormatUint(uint64(o.PID), 10)
		}
		text := format.Pad(gpu, 3) + format.Pad(pid, -8) + format.Pad(used, -11) + " " + tidy(o.Command)
		lines = append(lines, format.Cut(text, width))
		if notes && o.Note != "" {
			lines = append(lines, wrap("    ", tidy(o.Note), width)...)
		}
	}
	return lines
}

// sharersOf returns rows on processes that have memory of others: what traced ones have imported,
// by the events of the session, and what the kernel shows of dma-bufs and passed descriptors. Their
// bytes are in the sums of the owner, or of nobody if that has ended. With notes, those that
// othersOf shows are left out.
func sharersOf(x *scene, height int, notes bool) []string {
	if x.b == nil || height < 3 {
		return nil
	}
	rows := x.b.importers(x.gpu)
	for _, o := range x.b.Others {
		if o.Shares != "" && (x.gpu == nil || o.GPU < 0 || x.b.labelOf(*x.gpu) == strconv.Itoa(o.GPU)) && !(notes && !x.b.traces(o.PID)) {
			if row := (sharer{o.PID, tidy(o.Command), tidy(o.Shares)}); !slices.Contains(rows, row) { // a process has one for each GPU
				rows = append(rows, row)
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	width := x.size.width
	lines := []string{"", x.p.paint(bold, format.Cut("Have memory of other processes", width))}
	for i, row := range rows {
		if room := height - len(lines); room <= 1 && i < len(rows)-1 {
			return append(lines, format.Cut("  "+format.Count(uint64(len(rows)-i), "more row"), width))
		}
		pid, text := format.Pad(strconv.FormatUint(uint64(row.pid), 10), -11)+" ", row.name+": "+row.text
		if notes {
			lines = append(lines, wrap(pid, text, width)...)
		} else {
			lines = append(lines, format.Cut(pid+text, width))
		}
	}
	return lines
}

// sharer is a row of sharersOf.
type sharer struct {
	pid        uint32
	name, text string
}

// importers returns the traced processes on a GPU, or on all, that have imported memory.
func (b *books) importers(on *gpuKey) (rows []sharer) {
	for _, m := range b.imports {
		here := func(p process) bool { return p.index == m.Process && p.gpu >= 0 && b.gpus[p.gpu].key == *on }
		if on == nil || slices.ContainsFunc(b.processes, here) {
			p := &b.Snapshot.Processes[m.Process]
			rows = append(rows, sharer{p.PID, tidy(p.Comm), m.Text()})
		}
	}
	return rows
}

// traces reports whether a running process is traced.
func (b *books) traces(pid uint32) bool {
	return pid != 0 && slices.ContainsFunc(b.processes, func(p process) bool { return p.ended == 0 && p.pid == strconv.FormatUint(uint64(pid), 10) })
}
