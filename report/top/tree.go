// SPDX-License-Identifier: Apache-2.0

package top

import (
	"hash/maphash"
	"slices"

	"github.com/vramprof/vramprof/report"
)

// grove is the calls of the processes in scope, from main on: what report.CallTree shows, with more
// figures.
type grove struct {
	b     *books
	nodes []node
	at    map[uint64]int32 // by parent and branch
}

// node is a branch. Its own figures are of what stands in it and in no branch of it.
type node struct {
	lineRow
	parent   int32
	children []int32
	shares   []int32 // holdings of its own
	passes   bool    // the filter matches it or a branch of it
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
	x := node{parent: parent, lineRow: lineRow{line: line{process: process, gpu: -1, frame: max(frame, 0), first: -1}, node: n, processes: 1}}
	id, name := uint64(0), uint64(uint32(frame))
	if parent >= 0 {
		id, x.depth = g.nodes[parent].id, g.nodes[parent].depth+1
		g.nodes[parent].children = append(g.nodes[parent].children, n)
	}
	if frame == noFrame {
		k := keyOfProcess(&g.b.Snapshot.Processes[process])
		name = maphash.Comparable(seed, k)
		x.label = processName(g.b, process, 40)
	}
	x.id = maphash.Comparable(seed, [3]uint64{id, name, uint64(len(x.label))})
	g.nodes = append(g.nodes, x)
	return n
}

// plant adds all holdings in scope.
func (m *Model) plant() *grove {
	b, scope := m.shown, m.inScope()
	g := &grove{b: b, at: map[uint64]int32{}}
	perProcess := !m.merged && m.process == (processKey{}) && b.several(scope)
	for i := range b.lines {
		l := &b.lines[i]
		if !scope[l.process] || l.plane >= barPlanes {
			continue
		}
		for k := l.first; k >= 0; k = b.next[k] {
			g.add(k, l, perProcess)
		}
	}
	return g
}

func (b *books) several(scope []bool) bool {
	n := 0
	for _, in := range scope {
		n += btoi(in)
	}
	return n > 1
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
		if stack.leaf >= 0 && planeNumber(h.Plane) == driverPlane && h.Mark == "" {
			at = g.child(at, stack.leaf, l.process)
		}
	}
	if h.Mark != "" {
		at = g.child(at, g.b.marks[h.Mark], l.process)
	}
	if at < 0 {
		return
	}
	x := g.figures(h, l)
	g.nodes[at].own += h.Live
	g.nodes[at].shares = append(g.nodes[at].shares, k)
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
func (g *grove) figures(h *report.Holding, l *line) line {
	x := line{holdings: 1}
	if h.Site == nil || h.Mark != "" {
		return x
	}
	x.count, x.growth, x.judged, x.incomplete = report.AwakeObjects(h.Site), h.Site.Growth, g.b.Judged.of(g.b.Snapshot, h.Site), l.incomplete
	if ns, known := report.Age(g.b.Snapshot, h.Site); known {
		x.oldest = ns
	}
	return x
}

// openShare is the share of all memory above which a branch is unfolded by default.
const openShare = 20 // a twentieth

func (m *Model) listTree() {
	g := m.plant()
	columns := m.lineColumns()
	at := slices.IndexFunc(columns, func(c column[lineRow]) bool { return c.name == m.sorts[viewLines] })
	if at < 0 {
		at = 0
	}
	order := func(a, b int32) int {
		x, y := &g.nodes[a].lineRow, &g.nodes[b].lineRow
		if m.reversed[viewLines] {
			x, y = y, x
		}
		return columns[at].order(x, y)
	}
	var roots []int32
	sum := int64(0)
	for i := range g.nodes {
		x := &g.nodes[i]
		slices.SortStableFunc(x.children, order)
		if x.parent < 0 {
			roots, sum = append(roots, int32(i)), sum+x.total
		}
	}
	slices.SortStableFunc(roots, order)
	m.markPassing(g)
	for _, n := range roots {
		m.listBranch(g, n, sum)
	}
	m.lists.grove = g
}

// markPassing marks the branches that the filter matches, what they are in, and what is in them.
func (m *Model) markPassing(g *grove) {
	for i := range g.nodes { // parents come before their branches
		x := &g.nodes[i]
		f := &g.b.frames[x.frame]
		x.passes = x.label == "" && m.filter.passes(f.Function, f.File) || x.label != "" && m.filter.passes(x.label) ||
			x.parent >= 0 && m.filter.re != nil && g.nodes[x.parent].passes
	}
	for i := len(g.nodes) - 1; i >= 0; i-- {
		if x := &g.nodes[i]; x.passes && x.parent >= 0 {
			g.nodes[x.parent].passes = true
		}
	}
}

func (m *Model) listBranch(g *grove, n int32, sum int64) {
	x := &g.nodes[n]
	if !x.passes {
		return
	}
	x.branches = len(x.children) > 0
	x.open = x.total*openShare >= sum || m.filter.re != nil
	if m.folds[x.id] {
		x.open = !x.open
	}
	m.lists.lines = append(m.lists.lines, x.lineRow)
	if x.open {
		for _, c := range x.children {
			m.listBranch(g, c, sum)
		}
	}
}

// maxFolds is how many branches the user can fold.
const maxFolds = 1 << 12

// fold folds or unfolds the branch of the cursor. What is folded already goes to its parent.
func (m *Model) fold(folded bool) {
	if m.view != viewLines || !m.tree || m.rows() == 0 {
		return
	}
	c := &m.cursors[viewLines]
	c.at = min(c.at, len(m.lists.lines)-1)
	r := &m.lists.lines[c.at]
	switch {
	case r.branches && r.open == folded && len(m.folds) < maxFolds:
		m.folds[r.id] = !m.folds[r.id]
		m.lists.drop()
	case folded:
		for i := c.at - 1; i >= 0; i-- {
			if m.lists.lines[i].depth < r.depth {
				c.at = i
				break
			}
		}
	}
	m.lists.keep(m)
}
