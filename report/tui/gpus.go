// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report/format"
)

// gpuView is the view of GPUs.
type gpuView struct{ table[gpu] }

func (v *gpuView) fill(x *scene) {
	v.rows = v.rows[:0]
	for i := range x.b.gpus {
		g := &x.b.gpus[i]
		largest := ""
		if g.largest >= 0 {
			largest = x.b.processes[g.largest].command
		}
		if x.filter.passes(g.label, g.model, g.key.uuid, largest) {
			v.rows = append(v.rows, *g)
		}
	}
	v.rows = sortRows(v.rows, gpuColumns(x.b), v.by, v.reversed)
}

func (v *gpuView) key(_ *scene, i int) any { return v.rows[i].key }

func (*gpuView) names(x *scene) []string { return namesOf(fit(gpuColumns(x.b), x.size.width)) }

func (*gpuView) about(*scene) []string { return nil }

func (*gpuView) keys() []key.Binding { return []key.Binding{short(bound.open, "processes")} }

// open returns the processes of the GPU.
func (v *gpuView) open(x *scene) (target, bool) {
	rowsOf(v, x)
	g := v.atCursor()
	if g == nil {
		return target{}, false
	}
	return target{view: viewProcesses, choice: choice{x.process, &gpuKey{g.key.uuid, g.key.device}}}, true
}

// draw draws the table of GPUs with a bar below each row, if they have room.
func (v *gpuView) draw(x *scene) []string {
	height := x.size.bodyHeight()
	n := rowsOf(v, x)
	if n == 0 {
		return []string{"", x.nothing("no GPU is known")}
	}
	if height < 2*n+3 {
		return v.drawRows(x, gpuColumns(x.b), height)
	}
	table := v.drawRows(x, gpuColumns(x.b), n+1)
	list, full := table[:1:1], table[:1:1] // full: with the bytes of each plane
	for i, line := range table[1:] {
		g := &v.rows[i]
		bar := v.modelBar(x, g)
		list = append(list, line, bar)
		full = append(full, line, bar)
		full = append(append(full, x.p.legend(g, x.size.width)...), "")
	}
	if len(full) <= height+1 {
		return full[:min(len(full), height)]
	}
	return append(append(list, ""), x.p.legend(nil, x.size.width)...)
}

// modelBar draws the bar of a GPU, with its model where no column has it.
func (v *gpuView) modelBar(x *scene, g *gpu) string {
	model, width := "", x.size.width
	if width >= 60 && g.model != "" && !slices.Contains(v.names(x), "model") {
		model = " " + format.Cut(g.model, width/3)
	}
	return x.p.bar(g, max(width-2-format.Width(model), 1)) + x.p.paint(dim, model)
}
