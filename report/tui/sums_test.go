// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"testing"

	"github.com/vramprof/vramprof/report"
)

func TestAllViewsHaveEachByteOnce(t *testing.T) {
	list := moments()
	list["hostile"] = hostileMoment()
	for name, x := range list {
		m := screenOf(120, 40, Options{Flat: true}, x)
		b, s := m.shown, x.Snapshot
		var processes, gpus, lines, tree, parts int64
		placed := map[int]bool{} // processes on GPUs that NVML lists
		for _, p := range s.Parts() {
			if s.Processes[p.Process].End == 0 {
				parts += int64(report.PartUsage(&p))
				placed[p.Process] = true
			}
		}
		byNVML := int64(0)
		for i := range b.processes {
			p := &b.processes[i]
			processes += p.live
			if placed[p.index] { // also what is on an unknown GPU
				byNVML += p.live
			}
		}
		for i := range b.gpus {
			for k := range barPlanes {
				gpus += b.gpus[i].planes[k]
			}
		}
		press(m, "3")
		m.rows()
		for i := range m.views.lines.rows {
			if r := &m.views.lines.rows[i]; r.plane < barPlanes {
				lines += r.own
			}
		}
		press(m, "t")
		m.rows()
		for i := range m.views.lines.grove.nodes {
			if n := &m.views.lines.grove.nodes[i]; n.parent < 0 {
				tree += n.total
			}
		}
		if processes != lines || processes != tree || processes != gpus {
			t.Errorf("%s: processes have %d bytes, GPUs %d, lines %d, the tree %d", name, processes, gpus, lines, tree)
		}
		if byNVML != parts {
			t.Errorf("%s: processes have %d bytes, NVML's parts %d", name, byNVML, parts)
		}
	}
}

func TestMergedLinesHaveTheSameSum(t *testing.T) {
	for name, x := range moments() {
		m := screenOf(120, 40, Options{Flat: true}, x)
		press(m, "3")
		sum := func() (n int64) {
			m.rows()
			for i := range m.views.lines.rows {
				n += m.views.lines.rows[i].own
			}
			return n
		}
		apart := sum()
		press(m, "m")
		if merged := sum(); merged != apart {
			t.Errorf("%s: %d bytes merged, %d apart", name, merged, apart)
		}
	}
}
