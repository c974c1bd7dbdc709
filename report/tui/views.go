// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"

	"charm.land/bubbles/v2/key"
)

// view is a list of rows, one of which has the cursor. It keeps what the user made of it, and draws
// itself from a scene.
type view interface {
	state() *listState
	fill(x *scene) // makes the rows: see rowsOf
	count() int
	key(x *scene, i int) any      // identifies a row in later moments
	names(x *scene) []string      // of the columns that are on the screen
	about(x *scene) []string      // what limits the rows: "of python3 [42]"
	draw(x *scene) []string       // x.b is not nil
	open(x *scene) (target, bool) // what Enter on the row of the cursor leads to
	keys() []key.Binding          // those that matter most in it
}

// target is a view with what was chosen, or a page.
type target struct {
	view viewNumber
	choice
	page page // nil: none
}

// viewNumber is one of the four views.
type viewNumber int

const (
	viewGPUs viewNumber = iota
	viewProcesses
	viewLines
	viewTimeline
	viewCount
)

var viewNames = [viewCount]string{"GPUs", "Processes", "Lines", "Timeline"}

// views are all of them.
type views struct {
	gpus      gpuView
	processes processView
	lines     lineView
	timeline  timelineView
}

func newViews(o *Options) views {
	v := views{lines: lineView{tree: !o.Flat, folds: map[uint64]bool{}}}
	v.gpus.by, v.processes.by, v.lines.by = "gpu", "live", v.lines.firstColumn()
	v.sortBy(o.Sort)
	return v
}

func (v *views) of(n viewNumber) view {
	switch n {
	case viewGPUs:
		return &v.gpus
	case viewProcesses:
		return &v.processes
	case viewLines:
		return &v.lines
	}
	return &v.timeline
}

// drop has all rows made again.
func (v *views) drop() {
	for n := range viewCount {
		v.of(n).state().made = false
	}
}

// sortBy sorts the views that have a column by it.
func (v *views) sortBy(name string) {
	if name == "" {
		return
	}
	x := &scene{b: sample()}
	if slices.Contains(namesOf(gpuColumns(x.b)), name) {
		v.gpus.by = name
	}
	if slices.Contains(namesOf(processColumns(x.b)), name) {
		v.processes.by = name
	}
	switch {
	case slices.Contains(namesOf(lineColumns(x, true)), name):
		v.lines.by = name
	case slices.Contains(namesOf(lineColumns(x, false)), name): // a tree does not have it
		v.lines.by, v.lines.tree = name, false
	}
}

// listState is how the rows of a view are ordered, and where the cursor is.
type listState struct {
	cursor   cursor
	by       string // name of the column
	reversed bool
	made     bool // the rows are those of the scene
	kept     any  // key of the row of the cursor; nil: the cursor stays at the top
}

func (l *listState) state() *listState { return l }

// moveSort sorts by the next column, or by the one before.
func (l *listState) moveSort(names []string, step int) {
	at := slices.Index(names, l.by)
	if at < 0 {
		at = 0
	} else {
		at = max(0, min(at+step, len(names)-1))
	}
	l.by = names[at]
}

// keep notes the row of the cursor, so that the cursor stays with it when the order changes.
func (l *listState) keep(v view, x *scene) {
	l.kept = nil
	if at := l.cursor.at; at > 0 && at < v.count() {
		l.kept = v.key(x, at)
	}
}

// follow moves the cursor to where its row is now.
func (l *listState) follow(v view, x *scene) {
	if l.kept == nil {
		return
	}
	n := v.count()
	for i := range n {
		if v.key(x, i) == l.kept {
			l.cursor.at = i
			return
		}
	}
	l.cursor.at = max(0, min(l.cursor.at, n-1))
}

// rowsOf makes the rows of a view if it is needed, and returns how many there are.
func rowsOf(v view, x *scene) int {
	if x.b == nil {
		return 0
	}
	if l := v.state(); !l.made {
		v.fill(x)
		l.made = true
		l.follow(v, x)
	}
	return v.count()
}

// table is the rows of a view.
type table[R any] struct {
	listState
	rows []R
}

func (t *table[R]) count() int { return len(t.rows) }

// atCursor returns the row of the cursor, nil if there is none.
func (t *table[R]) atCursor() *R {
	if n := len(t.rows); n > 0 {
		return &t.rows[min(t.cursor.at, n-1)]
	}
	return nil
}

// drawRows draws a header and the rows around the cursor.
func (t *table[R]) drawRows(x *scene, columns []column[R], height int) []string {
	columns = fit(columns, x.size.width)
	list := []string{header(columns, x.p, t.by, t.reversed, x.size.width)}
	t.cursor.show(len(t.rows), height-1)
	for i := t.cursor.from; i < len(t.rows) && len(list) < height; i++ {
		list = append(list, row(columns, x.p, &t.rows[i], i == t.cursor.at, x.size.width))
	}
	return list
}
