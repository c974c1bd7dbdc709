// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"
	"strconv"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxEnded is how many processes that have ended are shown, the latest.
const maxEnded = 20

func (d *reading) finishProcesses() {
	d.rowsOfIdle()
	peaks := map[rowKey]uint64{}
	parts := d.s.Parts()
	for i := range parts {
		x := &parts[i]
		key := rowKey{d.s.Processes[x.Process].ID(), gpuKey{uuid: x.UUID}}
		peaks[key] = max(peaks[key], report.UsagePeak(d.s, x))
	}
	classes := make([]verdict.Class, len(d.s.Processes)) // of all GPUs
	worst := map[[2]int]verdict.Class{}
	for i := range d.lines {
		l := &d.lines[i]
		classes[l.process] = max(classes[l.process], l.class())
		at := [2]int{l.process, l.gpu}
		worst[at] = max(worst[at], l.class())
	}
	for i := range d.processes {
		x := &d.processes[i]
		p := &d.s.Processes[x.index]
		x.pid, x.command = strconv.FormatUint(uint64(p.PID), 10), tidy(p.Comm)
		x.user, x.job = d.userName(p.User), jobText(p)
		if rank := format.Digits(p.Rank); rank != "" {
			x.rank = "rank " + rank
		}
		x.peak = max(x.live, int64(peaks[x.key]))
		x.class = worst[[2]int{x.index, x.gpu}]
		if x.gpu < 0 || x.class == 0 {
			x.class = max(x.class, hostClass(worst, x))
		}
		x.lost = p.Lost > 0 || len(p.Beyond) > 0
		x.since = report.Minus(d.s.End, p.Begin)
		if p.End != 0 {
			x.class, x.ended = classes[x.index], report.Minus(d.s.End, p.End)+1
		}
	}
}

func hostClass(worst map[[2]int]verdict.Class, x *process) verdict.Class {
	return worst[[2]int{x.index, -1}]
}

// rowsOfIdle adds processes that hold nothing: those that run, and the latest that ended.
func (d *reading) rowsOfIdle() {
	var ended []int
	for i := range d.s.Processes {
		switch p := &d.s.Processes[i]; {
		case p.End != 0:
			ended = append(ended, i)
		case len(d.rows[i]) == 0:
			d.row(i, d.onlyGPU(i))
		}
	}
	slices.SortFunc(ended, func(a, b int) int { return int(int64(d.s.Processes[b].End) - int64(d.s.Processes[a].End)) })
	for _, i := range ended[:min(len(ended), maxEnded)] {
		d.row(i, d.onlyGPU(i))
	}
}

// onlyGPU returns the GPU of a process by NVML's readings, the first of several, or -1.
func (d *reading) onlyGPU(p int) int {
	for i := range d.s.Balances {
		if b := &d.s.Balances[i]; b.Process == p {
			return d.gpuOf(b.UUID, b.Device)
		}
	}
	return -1
}

func (d *reading) finishGPUs() {
	for i := range d.processes {
		x := &d.processes[i]
		if x.gpu < 0 || x.ended != 0 {
			continue
		}
		g := &d.gpus[x.gpu]
		g.running++
		for k := range x.planes {
			g.planes[k] += x.planes[k]
		}
		if x.live > 0 && (g.largest < 0 || x.live > d.processes[g.largest].live) {
			g.largest = i
		}
	}
	for i := range d.gpus {
		g := &d.gpus[i]
		sum := int64(0)
		for k := range barPlanes {
			sum += g.planes[k]
		}
		if !g.known {
			g.used = uint64(max(sum, 0))
		}
		g.untraced = uint64(max(int64(g.used)-sum, 0))
	}
	parts := d.s.Parts()
	for i := range parts {
		x := &parts[i]
		if g, ok := d.gpuAt[gpuKey{uuid: x.UUID}]; ok && d.s.Processes[x.Process].End == 0 {
			d.gpus[g].beyond += x.Beyond()
		}
	}
}

func (r *reader) userName(user uint32) string {
	if user == 0 || user == ledger.NoUser {
		return ""
	}
	name, ok := r.users[user]
	if !ok {
		if r.user != nil {
			name = tidy(r.user(user - 1))
		}
		if name == "" {
			name = strconv.FormatUint(uint64(user-1), 10)
		}
		if len(r.users) >= 1<<12 {
			clear(r.users)
		}
		r.users[user] = name
	}
	return name
}
