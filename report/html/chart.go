// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// chart is the timeline's rows and marks at the page's moments.
func (o *overTime) chart() *chartData {
	c := &chartData{Peak: -1, Rows: []rowData{}, Marks: []markData{}}
	c.Times = o.differences(func(t int) int64 { return int64(since(o.tl.Times[t], o.b.s.Begin)) })
	last := 0
	for _, t := range o.grid {
		at, _ := slices.BinarySearch(o.points, t)
		c.Grid = append(c.Grid, at-last)
		last = at
	}
	if o.peak >= 0 {
		c.Peak = slices.Index(o.grid, o.peak)
	}
	for i := range o.tl.Rows {
		r := &o.tl.Rows[i]
		row := rowData{Process: o.processes[r.Process], GPU: o.gpus[i], Usage: o.differences(func(t int) int64 { return int64(r.Usage[t]) })}
		if r.Beyond != nil {
			row.Beyond = o.differences(func(t int) int64 { return int64(r.Beyond[t]) })
		}
		for _, plane := range planes {
			row.Planes = append(row.Planes, o.differences(column(r, plane)))
		}
		c.Rows = append(c.Rows, row)
	}
	for _, errors := range []bool{true, false} { // beyond the limit, those of large allocations are left out first
		for i := range o.tl.Marks {
			if m := &o.tl.Marks[i]; (m.Kind == timeline.OutOfMemory) == errors && len(c.Marks) < maxMarks {
				c.Marks = append(c.Marks, o.mark(m))
			}
		}
	}
	slices.SortStableFunc(c.Marks, func(a, b markData) int { return int(min(max(a.Time-b.Time, -1), 1)) })
	return c
}

// differences is empty where all is 0.
func (o *overTime) differences(at func(t int) int64) []int64 {
	list := make([]int64, 0, len(o.points))
	some, before := false, int64(0)
	for _, t := range o.points {
		v := at(t)
		some = some || v != 0
		list = append(list, v-before)
		before = v
	}
	if !some {
		return []int64{}
	}
	return list
}

func (o *overTime) mark(m *timeline.Mark) markData {
	d := markData{
		Time: int64(since(m.Time, o.b.s.Begin)), Kind: int(m.Kind), Process: o.processes[m.Process], GPU: host,
		Size: -1, API: o.b.text(shorten(untrusted.Clean(m.API))),
	}
	if m.Size != ledger.UnknownSize {
		d.Size = int64(m.Size)
	}
	if m.Kind == timeline.OutOfMemory || m.Kind == timeline.Large {
		d.GPU = o.b.gpu(deviceUUID(&o.tl.Processes[m.Process], m.Device), m.Device)
		d.Head = o.b.stack(m.Stack, m.API).head
	}
	return d
}
