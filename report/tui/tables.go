// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// processT is a process of a snapshot.
type processT = ledger.Process

// rowsOf draws a header and the rows around the cursor.
func rowsOf[R any](m *Model, columns []column[R], rows []R, s screen, height int) []string {
	columns = fit(columns, s.width)
	list := []string{header(columns, m.palette, m.sorts[m.view], m.reversed[m.view], s.width)}
	c := &m.cursors[m.view]
	c.show(len(rows), height-1)
	for i := c.from; i < len(rows) && len(list) < height; i++ {
		list = append(list, row(columns, m.palette, &rows[i], i == c.at, s.width))
	}
	return list
}

// nothing returns a line for an empty list.
func (m *Model) nothing(what string, width int) string {
	if m.filter.text != "" {
		what = "nothing matches /" + m.filter.text + "/ (Esc clears it)"
	}
	return m.palette.paint(dim, format.Cut("  "+what, width))
}

func (m *Model) drawProcesses(s screen) []string {
	height := s.bodyHeight()
	if m.rows() == 0 {
		return []string{"", m.nothing("no traced process uses CUDA", s.width)}
	}
	n := len(m.lists.processes)
	preview := height - n - 2 // a blank line and the header
	if preview < leastPreview {
		return rowsOf(m, processColumns(m.shown), m.lists.processes, s, height)
	}
	list := rowsOf(m, processColumns(m.shown), m.lists.processes, s, n+1)
	return append(list, m.preview(s, height-len(list))...)
}

// leastPreview is the least height of the lines below the processes.
const leastPreview = 5

// preview shows the largest lines of the chosen process below the processes.
func (m *Model) preview(s screen, height int) []string {
	x := m.chosenProcess()
	if x == nil {
		return nil
	}
	sub := &Model{
		o: m.o, shown: m.shown, palette: m.palette, view: viewLines, process: x.key.process, width: m.width, height: m.height,
		sorts: [viewCount]string{viewLines: "own"}, cursors: [viewCount]cursor{viewLines: {at: -1}},
	}
	head := fmt.Sprintf("Lines of %s (Enter shows all)", processName(m.shown, x.index, maxLabel))
	if x.ended != 0 {
		head = fmt.Sprintf("Lines of %s when it ended (Enter shows all)", processName(m.shown, x.index, maxLabel))
	}
	head = m.palette.paint(bold, format.Cut(head, s.width))
	if sub.rows() == 0 {
		return []string{"", head, m.palette.paint(dim, format.Cut("  no memory", s.width))}
	}
	columns := fit(sub.lineColumns(), s.width)
	list := []string{"", head, header(columns, m.palette, "own", false, s.width)}
	for i := range sub.lists.lines {
		if len(list) >= height {
			break
		}
		list = append(list, row(columns, m.palette, &sub.lists.lines[i], false, s.width))
	}
	return list
}

func (m *Model) drawLines(s screen, height int) []string {
	if m.rows() == 0 {
		what := "nothing is allocated"
		if m.process != (ledger.ProcessID{}) {
			what = "this process holds nothing that was seen (Esc shows all)"
		}
		return []string{"", m.nothing(what, s.width)}
	}
	return rowsOf(m, m.lineColumns(), m.lists.lines, s, height)
}

// drawGPUs draws the table of GPUs with a bar below each row, if they have room.
func (m *Model) drawGPUs(s screen) []string {
	height := s.bodyHeight()
	n := m.rows()
	if n == 0 {
		return []string{"", m.nothing("no GPU is known", s.width)}
	}
	if height < 2*n+3 {
		return rowsOf(m, gpuColumns(m.shown), m.lists.gpus, s, height)
	}
	table := rowsOf(m, gpuColumns(m.shown), m.lists.gpus, s, n+1)
	list, full := table[:1:1], table[:1:1] // full: with the bytes of each plane
	for i, line := range table[1:] {
		g := &m.lists.gpus[i]
		bar := m.gpuModelBar(g, s.width)
		list = append(list, line, bar)
		full = append(full, line, bar)
		full = append(append(full, m.legend(g, s.width)...), "")
	}
	if len(full) <= height+1 {
		return full[:min(len(full), height)]
	}
	return append(append(list, ""), m.legend(nil, s.width)...)
}

// gpuModelBar draws the bar of a GPU, with its model where no column has it.
func (m *Model) gpuModelBar(g *gpu, width int) string {
	model := ""
	if width >= 60 && g.model != "" && !slices.Contains(m.columnNames(), "model") {
		model = " " + format.Cut(g.model, width/3)
	}
	return m.bar(g, max(width-2-format.Width(model), 1)) + m.palette.paint(dim, model)
}
