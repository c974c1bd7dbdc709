// SPDX-License-Identifier: Apache-2.0

package tui

import "slices"

// columnNames returns the columns of the view that are on the screen.
func (m *Model) columnNames() []string {
	b := m.shown
	if b == nil {
		return nil
	}
	switch m.view {
	case viewGPUs:
		return namesOf(fit(gpuColumns(b), m.width))
	case viewProcesses:
		return namesOf(fit(processColumns(b), m.width))
	case viewLines:
		return namesOf(fit(m.lineColumns(), m.width))
	}
	return nil
}

func namesOf[R any](list []column[R]) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return names
}

// moveSort sorts by the next column, or by the one before.
func (m *Model) moveSort(step int) {
	names := m.columnNames()
	if len(names) == 0 {
		return
	}
	at := slices.Index(names, m.sorts[m.view])
	if at < 0 {
		at = 0
	} else {
		at = max(0, min(at+step, len(names)-1))
	}
	m.sorts[m.view] = names[at]
	m.lists.drop()
}

// sortBy sorts the views that have a column by it.
func (m *Model) sortBy(name string) {
	if name == "" {
		return
	}
	b := sample()
	if slices.Contains(namesOf(gpuColumns(b)), name) {
		m.sorts[viewGPUs] = name
	}
	if slices.Contains(namesOf(processColumns(b)), name) {
		m.sorts[viewProcesses] = name
	}
	tree, flat := Model{shown: b, tree: true}, Model{shown: b}
	switch {
	case slices.Contains(namesOf(tree.lineColumns()), name):
		m.sorts[viewLines] = name
	case slices.Contains(namesOf(flat.lineColumns()), name): // a tree does not have it
		m.sorts[viewLines], m.tree = name, false
	}
}
