// SPDX-License-Identifier: Apache-2.0

package text

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// GPUOfOOM returns the GPU of an out-of-memory error and the processes on it, as WriteOOM shows
// them.
func GPUOfOOM(s *ledger.Snapshot, st callstack.Stacks, o report.OOM) report.OOMGPU {
	v := newOOMCase(s, &o)
	g := report.OOMGPU{Own: v.own, Line: frameOf(st, o.Stack, o.Caller())}
	if v.gpu != nil {
		gpu := *v.gpu
		gpu.Used = v.used
		g.GPU = &gpu
	}
	if v.process >= 0 {
		g.Workload = s.Processes[v.process].Workload
	}
	largest := v.largest()
	for i := range v.users {
		u := &v.users[i]
		x := report.OOMUser{PID: u.pid, Bytes: u.bytes}
		if u.process >= 0 {
			p := &s.Processes[u.process]
			x.Comm, x.Workload, x.Traced = p.Comm, p.Workload, true
		} else {
			x.Comm = o.Names[u.pid]
		}
		if h := largest[u.process]; h != nil && u.process >= 0 {
			f := v.lineOf(h, st)
			x.Line, x.LineBytes = &f, uint64(h.Live)
		}
		g.Users = append(g.Users, x)
	}
	return g
}

// largest returns what holds most memory on the GPU, by process.
func (v *oomCase) largest() map[int]*report.Holding {
	largest := map[int]*report.Holding{}
	list := v.holdings() // largest first
	for i := range list {
		if h := &list[i]; largest[h.Process] == nil && h.Site != nil {
			largest[h.Process] = h
		}
	}
	return largest
}

func (v *oomCase) lineOf(h *report.Holding, st callstack.Stacks) callstack.Frame {
	return frameOf(st, h.Site.Stack, h.Site.API)
}

// frameOf returns the line of the user's own code of a stack.
func frameOf(st callstack.Stacks, id uint64, api string) callstack.Frame {
	stack := frames.Visible(st, id, api)
	return stack[frames.Headline(stack)]
}

// neighborsPart writes which line holds most of each other traced process on the GPU, if the
// largest sites do not show it.
func (v *oomCase) neighborsPart(p *page, st callstack.Stacks, top int) {
	shown := map[int]bool{v.process: true, -1: true}
	list := v.holdings()
	for i := range list[:min(len(list), top)] {
		if list[i].Site != nil {
			shown[list[i].Process] = true
		}
	}
	largest := v.largest()
	first := true
	for i := range v.users[:min(len(v.users), top)] {
		u := &v.users[i]
		h := largest[u.process]
		if h == nil || shown[u.process] {
			continue
		}
		if first {
			p.line(plain, 0, "")
			p.text(bold, 0, "Largest site of each other process")
			p.line(plain, 0, "")
			first = false
		}
		p.headLine(plain, format.Pad(format.Bytes(uint64(h.Live)), -10), v.lineOf(h, st))
		p.list(plain, siteIndent, ", ", append([]string{ownerName(v.s, u.process, report.MaxName) + " with " + format.Bytes(u.bytes)}, v.siteText(h)...)...)
	}
}
