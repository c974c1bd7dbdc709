// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// processColumns are the columns of the view of processes.
func processColumns(b *books) []column[process] {
	list := []column[process]{
		{name: "gpu", title: "GPU", width: b.labelWidth(), left: true, drop: 5, text: func(x *process, _ int) string { return b.gpuLabel(x.gpu) }, order: least(func(x *process) int { return x.gpu })},
		{name: "pid", title: "pid", width: 7, text: func(x *process, _ int) string { return x.pid }, order: func(x, y *process) int { return cmp.Compare(x.key.process.PID, y.key.process.PID) }},
		{name: "user", title: "user", width: 8, left: true, drop: 12, text: func(x *process, _ int) string { return x.user }, order: least(func(x *process) string { return x.user })},
		{name: "command", title: "command", width: 7, left: true, flex: true, text: func(x *process, _ int) string { return x.command }, order: least(func(x *process) string { return x.command })},
		{name: "job", title: "job", width: 12, left: true, flex: true, drop: 11, text: func(x *process, _ int) string { return x.job }, order: least(func(x *process) string { return x.job })},
		{name: "live", title: "live", width: 9, text: liveText, order: most(func(x *process) int64 { return x.live }), style: processStyle},
		{name: "peak", title: "peak", width: 9, drop: 4, text: func(x *process, _ int) string { return amountText(x.peak) }, order: most(func(x *process) int64 { return x.peak }), style: processStyle},
		{name: "growth", title: "growth/min", width: 10, drop: 3, text: func(x *process, _ int) string { return x.growth.text() }, order: most(func(x *process) int64 { return x.growth.perMinute })},
	}
	for k, drop := range [barPlanes]int{tensorPlane: 6, beforePlane: 7, cachePlane: 8, driverPlane: 9, roundingPlane: 10, unexplainedPlane: 13} {
		if (k == tensorPlane || k == cachePlane) && !b.has(tensorPlane) && !b.has(cachePlane) || k == roundingPlane && !b.has(roundingPlane) {
			continue
		}
		list = append(list, column[process]{
			name: planes[k].name, title: planes[k].short, width: max(9, format.Width(planes[k].short)), drop: drop, style: func(x *process) style { return planeStyle(x.planes[k], k) },
			text: func(x *process, _ int) string { return amountText(x.planes[k]) }, order: most(func(x *process) int64 { return x.planes[k] }),
		})
	}
	if b.has(hostPlane) {
		list = append(list, column[process]{name: "host", title: "host", width: 9, drop: 14, text: func(x *process, _ int) string { return amountText(x.planes[hostPlane]) },
			order: most(func(x *process) int64 { return x.planes[hostPlane] }), style: func(x *process) style { return planeStyle(x.planes[hostPlane], hostPlane) }})
	}
	list = slices.DeleteFunc(list, func(c column[process]) bool {
		return c.name == "user" && !b.any(userOf) || c.name == "job" && !b.any(jobOf)
	})
	list = append(list, column[process]{name: "verdict", title: "verdict", width: 9, left: true, drop: 2, text: verdictText, order: func(x, y *process) int { return cmp.Compare(y.class, x.class) },
		style: func(x *process) style {
			if x.ended != 0 {
				return dim
			}
			return classStyle(x.class)
		}})
	return list
}

// labelWidth returns how many columns the names of GPUs take.
func (b *books) labelWidth() int {
	width := 3
	for i := range b.gpus {
		width = max(width, format.Width(b.gpus[i].label))
	}
	return min(width, 8)
}

func userOf(x *process) string { return x.user }

func jobOf(x *process) string { return x.job }

// any reports whether a text of a process is known.
func (b *books) any(text func(*process) string) bool {
	return slices.ContainsFunc(b.processes, func(x process) bool { return text(&x) != "" })
}

// has reports whether a process holds memory of a plane.
func (b *books) has(plane int) bool {
	return slices.ContainsFunc(b.processes, func(x process) bool { return x.planes[plane] != 0 })
}

func planeStyle(bytes int64, plane int) style {
	if bytes == 0 {
		return dim
	}
	return planes[plane].style
}

func processStyle(x *process) style {
	switch {
	case x.ended != 0:
		return dim
	case x.lost:
		return warning
	}
	return bold
}

// liveText returns "≈1.95 GiB" of a process that lost events.
func liveText(x *process, _ int) string {
	if x.ended != 0 {
		return "ended"
	}
	text := format.SignedBytes(x.live)
	if x.lost {
		text = "≈" + text
	}
	return text
}

func verdictText(x *process, _ int) string {
	if x.ended != 0 {
		return format.Span(x.ended-1) + " ago"
	}
	return classMark(x.class)
}

func amountText(bytes int64) string {
	if bytes == 0 {
		return "·"
	}
	return format.SignedBytes(bytes)
}

// text returns "+128 MiB", "" while it is not known or where nothing changes.
func (g *growth) text() string { return changeText(g.perMinute) }

// leastChange is the least change in a minute that is shown: estimates change by some bytes.
const leastChange = 1 << 10

func changeText(perMinute int64) string {
	if report.Magnitude(perMinute) < leastChange {
		return ""
	}
	return format.Difference(perMinute)
}

// gpuColumns are the columns of the view of GPUs.
func gpuColumns(b *books) []column[gpu] {
	list := []column[gpu]{
		{name: "gpu", title: "GPU", width: max(b.labelWidth(), 4), left: true, text: func(g *gpu, _ int) string { return g.label }, order: func(x, y *gpu) int { return cmp.Compare(b.gpuIndex(x), b.gpuIndex(y)) }},
		{name: "model", title: "model", width: 10, left: true, flex: true, drop: 12, text: func(g *gpu, _ int) string { return g.model }, order: least(func(g *gpu) string { return g.model })},
		{name: "live", title: "used", width: 9, text: func(g *gpu, _ int) string { return format.Bytes(g.used) }, order: most(func(g *gpu) uint64 { return g.used }), style: func(*gpu) style { return bold }},
		{name: "total", title: "of", width: 9, drop: 5, text: func(g *gpu, _ int) string { return totalText(g.total) }, order: most(func(g *gpu) uint64 { return g.total })},
		{name: "share", title: "%", width: 4, drop: 2, text: func(g *gpu, _ int) string { return shareText(g) }, order: most(func(g *gpu) float64 { return share(g) }), style: shareStyle},
		{name: "growth", title: "growth/min", width: 10, drop: 4, text: func(g *gpu, _ int) string { return g.growth.text() }, order: most(func(g *gpu) int64 { return g.growth.perMinute })},
		{name: "full", title: "full in", width: 8, drop: 3, text: func(g *gpu, _ int) string { return g.fullText() }, order: func(x, y *gpu) int { return cmp.Compare(x.untilFull(), y.untilFull()) }, style: fullStyle},
		{name: "processes", title: "procs", width: 5, drop: 7, text: func(g *gpu, _ int) string { return strconv.Itoa(g.running) }, order: most(func(g *gpu) int { return g.running })},
		{name: "command", title: "largest process", width: 22, left: true, drop: 6, text: func(g *gpu, w int) string { return b.largestText(g, w) }, order: least(func(g *gpu) string { return b.largestText(g, 22) })},
	}
	for k, drop := range [barPlanes]int{tensorPlane: 8, cachePlane: 9, driverPlane: 10, roundingPlane: 12, beforePlane: 11, unexplainedPlane: 13} {
		if k == roundingPlane && !b.has(roundingPlane) {
			continue
		}
		list = append(list, column[gpu]{
			name: planes[k].name, title: planes[k].short, width: max(9, format.Width(planes[k].short)), drop: drop, style: func(g *gpu) style { return planeStyle(g.planes[k], k) },
			text: func(g *gpu, _ int) string { return amountText(g.planes[k]) }, order: most(func(g *gpu) int64 { return g.planes[k] }),
		})
	}
	return append(list, column[gpu]{name: "untraced", title: "untraced", width: 9, drop: 14, text: func(g *gpu, _ int) string { return amountText(int64(g.untraced)) }, order: most(func(g *gpu) uint64 { return g.untraced })})
}

func (b *books) gpuIndex(g *gpu) int {
	return slices.IndexFunc(b.gpus, func(x gpu) bool { return x.key == g.key })
}

func totalText(total uint64) string {
	if total == 0 {
		return "?"
	}
	return format.Bytes(total)
}

// share is how much of a GPU is used, -1 if its size is unknown.
func share(g *gpu) float64 {
	if g.total == 0 {
		return -1
	}
	return float64(g.used) / float64(g.total)
}

func shareText(g *gpu) string {
	if g.total == 0 {
		return ""
	}
	return strconv.Itoa(int(100*share(g)+0.5)) + "%"
}

func shareStyle(g *gpu) style {
	switch x := share(g); {
	case x >= 0.95:
		return alarm
	case x >= 0.8:
		return warning
	}
	return plain
}

const (
	never      = 1 << 62     // ns
	farFuture  = 7 * 86400e9 // ns: a GPU that is full later has no time
	soon       = 600e9       // ns
	leastShare = 1000        // growth below this part of a GPU in a minute is none
)

// untilFull returns in how many ns the GPU is full at its present growth.
func (g *gpu) untilFull() uint64 {
	if g.total == 0 || g.growth.perMinute <= int64(g.total/leastShare/60) {
		return never
	}
	ns := float64(g.total-min(g.used, g.total)) / float64(g.growth.perMinute) * 60e9
	if ns > farFuture {
		return never
	}
	return uint64(ns)
}

func (g *gpu) fullText() string {
	if ns := g.untilFull(); ns != never {
		return format.Span(ns)
	}
	return ""
}

func fullStyle(g *gpu) style {
	switch ns := g.untilFull(); {
	case ns < soon:
		return alarm
	case ns != never:
		return warning
	}
	return plain
}

// largestText returns "python3 [42] 3.0 GiB".
func (b *books) largestText(g *gpu, width int) string {
	if g.largest < 0 {
		return ""
	}
	x := &b.processes[g.largest]
	size := " " + format.SignedBytes(x.live)
	room := max(width-len(size), 4)
	if name := processName(b, x.index, maxLabel); format.Width(name) <= room {
		return name + size
	}
	p := &b.Snapshot.Processes[x.index] // without brackets, more of the name has room
	pid := " " + strconv.FormatUint(uint64(p.PID), 10)
	return format.Cut(tidy(p.Comm), max(room-len(pid), 1)) + pid + size
}

// sample are books that have something in each column.
func sample() *books {
	x := process{user: "x", job: "x", planes: [planeCount]int64{1, 1, 1, 1, 1, 1, 1, 1}}
	return &books{Moment: Moment{Snapshot: &ledger.Snapshot{Processes: make([]ledger.Process, 2)}}, processes: []process{x}, gpus: make([]gpu, 2), alive: true}
}

// Columns returns the names that Options.Sort takes.
func Columns() []string {
	names := map[string]bool{}
	b := sample()
	for _, c := range processColumns(b) {
		names[c.name] = true
	}
	for _, c := range gpuColumns(b) {
		names[c.name] = true
	}
	for _, c := range lineColumns(&scene{b: b}, false) {
		names[c.name] = true
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func namesOf[R any](list []column[R]) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return names
}
