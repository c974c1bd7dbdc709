// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/report/format"
)

// maxOnce is how many lines of code Once writes.
const maxOnce = 15

// Once writes one screen as text without control sequences, in lines of at most width columns: the
// GPUs, all processes, the largest lines of code, what happened and what the figures leave open.
func Once(w io.Writer, x Moment, o Options, width int) error {
	m := New(o)
	m.palette, m.width, m.height = nil, max(width, 20), 1<<12
	b := m.reader.read(x)
	m.take(b)
	list := []string{strings.TrimSpace(m.titleLine(m.width)), ""}
	bars := false
	for i := range b.gpus {
		line := m.gpuBar(&b.gpus[i], m.width)
		bars = bars || strings.Contains(line, "[")
		list = append(list, line)
	}
	if bars {
		list = append(list, m.legend(nil, m.width)...)
	}
	if len(b.gpus) > 0 {
		list = append(list, "")
	}
	list = append(list, m.onceProcesses()...)
	list = append(list, m.onceLines()...)
	for i, h := range m.chronicle.list {
		if i == 0 {
			list = append(list, "")
		}
		list = append(list, wrap("", format.Join(h.clock, h.text), m.width)...)
	}
	if len(b.doubts) > 0 {
		list = append(list, "")
	}
	for _, text := range b.doubts {
		list = append(list, wrap("! ", text, m.width)...)
	}
	for i := range list {
		list[i] = strings.TrimRight(list[i], " ") + "\n"
	}
	if _, err := io.WriteString(w, strings.Join(list, "")); err != nil {
		return fmt.Errorf("write screen: %w", err)
	}
	return nil
}

func (m *Model) onceProcesses() []string {
	m.view = viewProcesses
	if m.rows() == 0 {
		return []string{"No traced process uses CUDA"}
	}
	columns := fit(processColumns(m.shown), m.width)
	list := []string{header(columns, nil, m.sorts[viewProcesses], false, m.width)}
	for i := range m.lists.processes {
		list = append(list, row(columns, nil, &m.lists.processes[i], false, m.width))
	}
	return list
}

func (m *Model) onceLines() []string {
	m.view, m.tree = viewLines, false
	m.sorts[viewLines] = "own"
	m.sortBy(m.o.Sort)
	n := m.rows()
	if n == 0 {
		return nil
	}
	columns := fit(m.lineColumns(), m.width)
	list := []string{"", header(columns, nil, m.sorts[viewLines], false, m.width)}
	for i := range m.lists.lines[:min(n, maxOnce)] {
		list = append(list, row(columns, nil, &m.lists.lines[i], false, m.width))
	}
	if n > maxOnce {
		list = append(list, format.Cut(format.Count(uint64(n-maxOnce), "more line"), m.width))
	}
	return list
}
