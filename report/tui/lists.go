// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"
)

// lists are the rows of the views, in their order. They are made when they are needed.
type lists struct {
	made      [viewCount]bool
	gpus      []gpu
	processes []process
	lines     []lineRow
	tracks    []trackRow
	chosen    [viewCount]any // key of the row of the cursor; nil: the cursor stays at the top
}

func (l *lists) drop() { l.made = [viewCount]bool{} }

// keep notes the row of the cursor, so that the cursor stays with it when the order changes.
func (l *lists) keep(m *Model) {
	l.chosen[m.view] = nil
	if at := m.cursors[m.view].at; at > 0 && at < m.rows() {
		l.chosen[m.view] = m.keyOf(at)
	}
}

func (m *Model) keyOf(i int) any {
	l := &m.lists
	switch m.view {
	case viewGPUs:
		return l.gpus[i].key
	case viewProcesses:
		return l.processes[i].key
	case viewLines:
		return m.idOf(&l.lines[i])
	}
	return l.tracks[i].key
}

// rows makes the list of the view, and returns how long it is.
func (m *Model) rows() int {
	v := m.view
	if m.shown == nil {
		return 0
	}
	if !m.lists.made[v] {
		switch v {
		case viewGPUs:
			m.listGPUs()
		case viewProcesses:
			m.listProcesses()
		case viewLines:
			m.listLines()
		case viewTimeline:
			m.listTracks()
		}
		m.lists.made[v] = true
		m.follow()
	}
	return m.count()
}

func (m *Model) count() int {
	switch m.view {
	case viewGPUs:
		return len(m.lists.gpus)
	case viewProcesses:
		return len(m.lists.processes)
	case viewLines:
		return len(m.lists.lines)
	}
	return len(m.lists.tracks)
}

// follow moves the cursor to where its row is now.
func (m *Model) follow() {
	key, c := m.lists.chosen[m.view], &m.cursors[m.view]
	if key == nil {
		return
	}
	n := m.count()
	for i := range n {
		if m.keyOf(i) == key {
			c.at = i
			return
		}
	}
	c.at = max(0, min(c.at, n-1))
}

func (m *Model) listGPUs() {
	b := m.shown
	m.lists.gpus = m.lists.gpus[:0]
	for i := range b.gpus {
		g := &b.gpus[i]
		largest := ""
		if g.largest >= 0 {
			largest = b.processes[g.largest].command
		}
		if m.filter.passes(g.label, g.model, g.key.uuid, largest) {
			m.lists.gpus = append(m.lists.gpus, *g)
		}
	}
	m.lists.gpus = sortRows(m.lists.gpus, gpuColumns(b), m.sorts[viewGPUs], m.reversed[viewGPUs])
}

func (m *Model) listProcesses() {
	b := m.shown
	m.lists.processes = m.lists.processes[:0]
	for i := range b.processes {
		x := &b.processes[i]
		if m.gpu != nil && (x.gpu < 0 || b.gpus[x.gpu].key != *m.gpu) {
			continue
		}
		if m.filter.passes(x.command, x.pid, x.user, x.job, x.class.String()) || m.hasLine(x) {
			m.lists.processes = append(m.lists.processes, *x)
		}
	}
	list := m.lists.processes
	list = sortRows(list, processColumns(b), m.sorts[viewProcesses], m.reversed[viewProcesses])
	m.lists.processes = list
	slices.SortStableFunc(list, func(a, b process) int { return btoi(a.ended != 0) - btoi(b.ended != 0) })
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hasLine reports whether the filter matches a line of code of a process.
func (m *Model) hasLine(x *process) bool {
	b := m.shown
	for i := range b.lines {
		if l := &b.lines[i]; l.process == x.index {
			if f := &b.frames[l.frame]; !f.Mark && m.filter.passes(f.Function, f.File) {
				return true
			}
		}
	}
	return false
}

func (m *Model) chosenGPU() *gpu {
	if n := m.rows(); m.view == viewGPUs && n > 0 {
		return &m.lists.gpus[min(m.cursors[viewGPUs].at, n-1)]
	}
	return nil
}

func (m *Model) chosenProcess() *process {
	if n := m.rows(); m.view == viewProcesses && n > 0 {
		return &m.lists.processes[min(m.cursors[viewProcesses].at, n-1)]
	}
	return nil
}
