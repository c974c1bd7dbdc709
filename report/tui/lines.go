// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"hash/maphash"
	"strconv"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// lineRow is a row of the view of lines: a line, the sum of one line in several processes, or a
// branch of the tree.
type lineRow struct {
	line
	id        uint64  // of a branch: the same in later moments
	index     int32   // of a line, into books.lines
	parts     []int32 // of a sum, likewise
	node      int32   // of the tree; -1: none
	depth     int
	open      bool
	branches  bool   // it has branches
	label     string // of what is no line: "python3 [42]"
	processes int    // that are summed up
}

// lineView is the view of lines: a list, or a tree of calls.
type lineView struct {
	table[lineRow]
	tree, merged bool
	jobs         *ranks.Jobs     // joins the lines of a job's processes, if not nil
	folds        map[uint64]bool // branches that the user folded or unfolded
	grove        grove           // of the tree
}

// firstColumn returns the column that lines are sorted by at first.
func (v *lineView) firstColumn() string {
	if v.tree {
		return "total"
	}
	return "own"
}

func (v *lineView) toggleTree() {
	v.tree = !v.tree
	v.cursor, v.by = cursor{}, v.firstColumn()
}

func (v *lineView) key(x *scene, i int) any { return x.b.idOf(&v.rows[i]) }

func (v *lineView) columns(x *scene) []column[lineRow] { return lineColumns(x, v.tree) }

func (v *lineView) names(x *scene) []string { return namesOf(fit(v.columns(x), x.size.width)) }

// about returns "of python3 [42]", "tree" and "merged".
func (v *lineView) about(x *scene) (parts []string) {
	if text := x.processText(); text != "" {
		parts = append(parts, text)
	}
	if v.tree {
		parts = append(parts, "tree")
	}
	if v.merged {
		parts = append(parts, "merged")
	}
	return parts
}

func (*lineView) keys() []key.Binding {
	return []key.Binding{short(bound.open, "stack"), short(bound.tree, "tree/list"), short(bound.merge, "merge")}
}

// open returns the stacks of the row, if it has any.
func (v *lineView) open(x *scene) (target, bool) {
	if rowsOf(v, x) == 0 {
		return target{}, false
	}
	d := newDetail(x.b, v.holdings(x.b, v.atCursor()))
	return target{page: d}, len(d.shares) > 0
}

// holdings returns what a row sums.
func (v *lineView) holdings(b *books, r *lineRow) (list []int32) {
	if r.node >= 0 {
		list = v.grove.below(r.node, nil)
	}
	for _, i := range r.indices() {
		for k := b.lines[i].first; k >= 0; k = b.next[k] {
			list = append(list, k)
		}
	}
	return list
}

func (v *lineView) draw(x *scene) []string {
	if rowsOf(v, x) == 0 {
		what := "nothing is allocated"
		if x.ofOne() {
			what = "this process holds nothing that was seen (Esc shows all)"
		}
		return []string{"", x.nothing(what)}
	}
	return v.drawRows(x, v.columns(x), x.size.bodyHeight())
}

func (v *lineView) fill(x *scene) {
	v.rows = v.rows[:0]
	if v.tree {
		v.fillTree(x)
		return
	}
	b, scope := x.b, x.inScope()
	at, seen := map[mergedKey]int{}, map[[2]int]bool{} // seen: row and process
	for i := range b.lines {
		l := &b.lines[i]
		if !scope[l.process] || !x.passesLine(l) {
			continue
		}
		r := lineRow{line: *l, index: int32(i), node: -1, processes: 1}
		key, joins := v.mergedKey(l)
		if !joins {
			v.rows = append(v.rows, r)
			continue
		}
		n, ok := at[key]
		if !ok {
			at[key] = len(v.rows)
			seen[[2]int{len(v.rows), l.process}] = true
			if r.parts = []int32{int32(i)}; v.merged {
				r.process = -1
			}
			v.rows = append(v.rows, r)
			continue
		}
		if at := [2]int{n, l.process}; !seen[at] {
			seen[at] = true
			v.rows[n].processes++
		}
		v.rows[n].join(l, int32(i))
	}
	v.rows = sortRows(v.rows, v.columns(x), v.by, v.reversed)
}

// mergedKey is what the lines of one row have in common.
type mergedKey struct {
	lineKey
	class verdict.Class
}

// mergedKey returns the row of a line, if it may have other lines: with merged those of all
// processes, else those of its job with a like verdict.
func (v *lineView) mergedKey(l *line) (key mergedKey, joins bool) {
	key.lineKey = lineKey{-1, -1, int32(l.plane), l.frame}
	if v.merged || v.jobs == nil {
		return key, v.merged
	}
	key.process, key.class = int32(v.jobs.Of(l.process)), ranks.Alike(l.class())
	return key, v.jobs.Size(l.process) > 1
}

// indices returns the lines of a row, none of a branch.
func (r *lineRow) indices() []int32 {
	switch {
	case r.node >= 0:
		return nil
	case r.parts == nil:
		return []int32{r.index}
	}
	return r.parts
}

// join adds a line of another process or GPU.
func (r *lineRow) join(l *line, i int32) {
	if r.gpu != l.gpu {
		r.gpu = -1
	}
	r.parts = append(r.parts, i)
	r.own += l.own
	r.total += l.total
	r.addFigures(l)
}

// addFigures adds what both lines and branches have.
func (l *line) addFigures(x *line) {
	l.count += x.count
	l.growth += x.growth
	l.oldest = max(l.oldest, x.oldest)
	l.holdings += x.holdings
	l.incomplete = l.incomplete || x.incomplete
	if x.class() > l.class() {
		l.judged = x.judged
	}
}

func (x *scene) passesLine(l *line) bool {
	if x.filter.re == nil {
		return true
	}
	b := x.b
	f, p := &b.frames[l.frame], &b.Snapshot.Processes[l.process]
	return x.filter.passes(f.File, f.Function, tidy(p.Comm), strconv.FormatUint(uint64(p.PID), 10), l.class().String(), planes[l.plane].short)
}

var seed = maphash.MakeSeed()

// idOf returns what identifies a row in later moments.
func (b *books) idOf(r *lineRow) uint64 {
	switch {
	case r.node >= 0:
		return r.id
	case r.parts != nil:
		return maphash.Comparable(seed, [2]int32{int32(r.plane), r.frame})
	default:
		return maphash.Comparable(seed, struct {
			process ledger.ProcessID
			gpu     gpuKey
			plane   int
			frame   int32
		}{b.Snapshot.Processes[r.process].ID(), b.gpuKey(r.gpu), r.plane, r.frame})
	}
}

// gpuKey returns the key of a GPU by its index.
func (b *books) gpuKey(gpu int) gpuKey {
	if gpu < 0 {
		return gpuKey{}
	}
	return b.gpus[gpu].key
}
