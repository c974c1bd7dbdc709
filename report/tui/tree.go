// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"hash/maphash"

	"github.com/vramprof/vramprof/report"
)

// grove is the calls of the processes in scope, from main on: what report.CallTree shows, with more
// figures. Its memory is used again for the next moment.
type grove struct {
	b     *books
	nodes []node
	at    map[uint64]int32 // by parent and branch
	next  []int32          // of a holding: the next one of its node; -1: none
}

// node is a branch. Its own bytes are of what stands in it and in no branch of it.
type node struct {
	line          // first is a holding of its own, the others follow by grove.next
	parent        int32
	child, beside int32 // its first branch, and the next one of its parent; -1: none
	processes     int32
	isProcess     bool
	passes        bool // the filter matches it or a branch of it
}

const noFrame = -1

func (g *grove) child(parent, frame int32, process int) int32 {
	key := uint64(uint32(parent+1))<<32 | uint64(uint32(frame))
	if frame == noFrame {
		key = 1<<63 | uint64(process)
	}
	if n, ok := g.at[key]; ok {
		return n
	}
	n := int32(len(g.nodes))
	g.at[key] = n
	x := node{parent: parent, child: -1, beside: -1, processes: 1, isProcess: frame == noFrame, line: line{process: process, gpu: -1, frame: max(frame, 0), first: -1}}
	if parent >= 0 {
		p := &g.nodes[parent]
		x.beside, p.child = p.child, n
	}
	g.nodes = append(g.nodes, x)
	return n
}

// plant adds all holdings in scope, those of each process to a branch of its own unless merged.
func (g *grove) plant(x *scene, merged bool) {
	b, scope := x.b, x.inScope()
	if g.at == nil {
		g.at = map[uint64]int32{}
	}
	clear(g.at)
	g.b, g.nodes = b, g.nodes[:0]
	if g.next = g.next[:0]; cap(g.next) < len(b.holdings) {
		g.next = make([]int32, 0, len(b.holdings))
	}
	g.next = g.next[:len(b.holdings)]
	perProcess := !merged && !x.ofOne() && several(scope)
	for i := range b.lines {
		l := &b.lines[i]
		if !scope[l.process] || l.plane >= barPlanes {
			continue
		}
		for k := l.first; k >= 0; k = b.next[k] {
			g.add(k, l, perProcess)
		}
	}
}

func (g *grove) add(k int32, l *line, perProcess bool) {
	h := &g.b.holdings[k]
	if h.Live == 0 && (h.Site == nil || h.Site.LiveObjects == 0) {
		return
	}
	at := int32(-1)
	if perProcess {
		at = g.child(at, noFrame, l.process)
	}
	if h.Site != nil {
		stack := g.b.paths[k]
		for _, f := range stack.path {
			at = g.child(at, f, l.process)
		}
		if stack.leaf >= 0 && l.plane == driverPlane && h.Mark == "" {
			at = g.child(at, stack.leaf, l.process)
		}
	}
	if h.Mark != "" {
		at = g.child(at, g.b.marks[h.Mark], l.process)
	}
	if at < 0 {
		return
	}
	x := g.figures(k, l)
	own := &g.nodes[at]
	own.own += h.Live
	g.next[k], own.first = own.first, k
	for ; at >= 0; at = g.nodes[at].parent {
		y := &g.nodes[at]
		y.total += h.Live
		y.addFigures(&x)
		if y.process != l.process {
			y.process, y.processes = -1, y.processes+1
		}
	}
}

// figures returns what one holding adds to its branches.
func (g *grove) figures(k int32, l *line) line {
	x, h := line{holdings: 1}, &g.b.holdings[k]
	if h.Site == nil || h.Mark != "" {
		return x
	}
	x.count, x.growth, x.judged, x.incomplete = report.AwakeObjects(h.Site), g.b.grown(h.Site), g.b.judged[k], l.incomplete
	if ns, known := report.Age(g.b.Snapshot, h.Site); known {
		x.oldest = ns
	}
	return x
}

// openShare is the share of all memory above which a branch is unfolded by default.
const openShare = 20 // a twentieth

func (v *lineView) fillTree(x *scene) {
	g := &v.grove
	g.plant(x, v.merged)
	g.markPassing(&x.filter)
	var roots []int32
	sum := int64(0)
	for i := range g.nodes {
		if n := &g.nodes[i]; n.parent < 0 {
			roots, sum = append(roots, int32(i)), sum+n.total
		}
	}
	v.addBranches(roots, lineRow{depth: -1}, branches{sum, x.filter.re != nil, v.columns(x)})
}

// markPassing marks the branches that the filter matches, what they are in, and what is in them.
func (g *grove) markPassing(f *filter) {
	if f.re == nil {
		for i := range g.nodes {
			g.nodes[i].passes = true
		}
		return
	}
	for i := range g.nodes { // parents come before their branches
		x := &g.nodes[i]
		switch frame := &g.b.frames[x.frame]; {
		case x.parent >= 0 && g.nodes[x.parent].passes:
			x.passes = true
		case x.isProcess:
			x.passes = f.passes(processName(g.b, x.process, maxLabel))
		default:
			x.passes = f.passes(frame.Function, frame.File)
		}
	}
	for i := len(g.nodes) - 1; i >= 0; i-- {
		if x := &g.nodes[i]; x.passes && x.parent >= 0 {
			g.nodes[x.parent].passes = true
		}
	}
}

const maxLabel = 40 // columns of the name of a process

// branches is what all branches of a tree have in common.
type branches struct {
	sum      int64 // of all
	filtered bool
	columns  []column[lineRow]
}

// addBranches adds branches in their order, each with what is in it if it is open.
func (v *lineView) addBranches(list []int32, parent lineRow, of branches) {
	g := &v.grove
	rows := make([]lineRow, 0, len(list))
	for _, n := range list {
		x := &g.nodes[n]
		if !x.passes || x.total == 0 && x.count == 0 {
			continue
		}
		r := lineRow{line: x.line, node: n, depth: parent.depth + 1, processes: int(x.processes), branches: x.child >= 0}
		name := uint64(x.frame)
		if x.isProcess {
			name = maphash.Comparable(seed, g.b.Snapshot.Processes[x.process].ID())
			r.label = processName(g.b, x.process, maxLabel)
		}
		r.id = maphash.Comparable(seed, [2]uint64{parent.id, name})
		r.open = x.total*openShare >= of.sum || of.filtered
		if v.folds[r.id] {
			r.open = !r.open
		}
		rows = append(rows, r)
	}
	rows = sortRows(rows, of.columns, v.by, v.reversed)
	for _, r := range rows {
		v.rows = append(v.rows, r)
		if !r.open {
			continue
		}
		var inside []int32
		for c := g.nodes[r.node].child; c >= 0; c = g.nodes[c].beside {
			inside = append(inside, c)
		}
		v.addBranches(inside, r, of)
	}
}

// below returns the holdings of a branch and of all that is in it.
func (g *grove) below(n int32, list []int32) []int32 {
	for k := g.nodes[n].first; k >= 0; k = g.next[k] {
		list = append(list, k)
	}
	for c := g.nodes[n].child; c >= 0; c = g.nodes[c].beside {
		list = g.below(c, list)
	}
	return list
}

// maxFolds is how many branches the user can fold.
const maxFolds = 1 << 12

// fold folds or unfolds the branch of the cursor. What is folded already goes to its parent.
func (v *lineView) fold(x *scene, folded bool) {
	if !v.tree || rowsOf(v, x) == 0 {
		return
	}
	c := &v.cursor
	c.at = min(c.at, len(v.rows)-1)
	r := &v.rows[c.at]
	switch {
	case r.branches && r.open == folded && len(v.folds) < maxFolds:
		v.folds[r.id] = !v.folds[r.id]
		v.made, v.kept = false, nil
		rowsOf(v, x)
	case folded:
		for i := c.at - 1; i >= 0; i-- {
			if v.rows[i].depth < r.depth {
				c.at = i
				break
			}
		}
	}
	v.keep(v, x)
}
