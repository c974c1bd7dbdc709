// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Row sums what is held through one line of the user's own code.
type Row struct {
	Frame                       callstack.Frame
	Process                     int
	Device                      string
	Plane                       string
	Bytes                       int64
	Objects, Allocs, AllocBytes uint64
	Incomplete                  bool         // incomplete: see Marks
	Kept                        []HeldShare  // of memory from before the attach: who keeps it
	Calls                       []apart.Call // by what the stacks of the line differ
	Module                      string       // whose parameters, buffers or gradients most of it is: see Kept.ModuleOf

	sites []*ledger.Site // whose own memory the row is
}

// Rows sums shares of memory by line of the user's own code, process, device and plane.
func Rows(s *ledger.Snapshot, st callstack.Stacks) []Row {
	type key struct {
		LineKey
		process int
		device  string
		plane   string
	}
	at, kept := map[key]int{}, KeptBy(s)
	var rows []Row
	var calls []apart.Calls
	for _, h := range Holdings(s) {
		f, kind := callstack.Frame{Function: h.Mark, Mark: true}, ledger.Device
		var stack []callstack.Frame
		head := 0
		if h.Site != nil {
			stack = frames.Visible(st, h.Site.Stack, h.Site.API)
			head = frames.Headline(stack)
			f, kind = stack[head], h.Site.Kind
		} else if h.Plane == PlaneTensor {
			kind = ledger.Tensor
		}
		k := key{LineKeyOf(&f), h.Process, format.Device(h.Device, kind), h.Plane}
		i, ok := at[k]
		if !ok {
			i = len(rows)
			at[k] = i
			rows, calls = append(rows, Row{Frame: f, Process: h.Process, Device: k.device, Plane: h.Plane}), append(calls, apart.Calls{})
		}
		if h.Site != nil && h.Mark == "" {
			calls[i].Add(stack, head, uint64(max(h.Live, 0)))
			rows[i].sites = append(rows[i].sites, h.Site)
		}
		r := &rows[i]
		r.Bytes += h.Live
		if h.IsNameless() {
			r.Kept = append(r.Kept, kept[h.Process].Divide(s, &h)...)
		}
		r.Incomplete = r.Incomplete || h.Site != nil && len(Marks(s, st, h.Site)) > 0
		if h.Site != nil && h.Plane != PlaneAsleep {
			r.Objects += AwakeObjects(h.Site)
			r.Allocs += h.Site.AllocObjects
			r.AllocBytes += h.Site.AllocBytes
		}
	}
	for i := range rows {
		r := &rows[i]
		r.Calls, r.Module = calls[i].Names(), kept[r.Process].ModuleOf(r.sites)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.AllocBytes, a.AllocBytes))
	})
	return slices.DeleteFunc(rows, func(r Row) bool { return r.Bytes == 0 && r.AllocBytes == 0 })
}

// RowChange is a Row, and what it held before.
type RowChange struct {
	Row
	Before int64
}

// ChangedRows lists the lines that hold more or less than at o.Since, the largest change first.
func ChangedRows(s *ledger.Snapshot, st callstack.Stacks, o Options) []RowChange {
	type key struct {
		LineKey
		pid           uint32
		begin         uint64
		device, plane string
	}
	at := map[key]int{}
	var list []RowChange
	changeOf := func(s *ledger.Snapshot, r Row) *RowChange {
		p := &s.Processes[r.Process]
		k := key{LineKeyOf(&r.Frame), p.PID, p.Begin, r.Device, r.Plane}
		i, ok := at[k]
		if !ok {
			i = len(list)
			at[k] = i
			r.Bytes = 0
			list = append(list, RowChange{Row: r})
		}
		return &list[i]
	}
	for _, r := range Rows(s, st) {
		changeOf(s, r).Bytes = r.Bytes
	}
	for _, r := range Rows(o.Since, st) {
		changeOf(o.Since, r).Before = r.Bytes
	}
	list = slices.DeleteFunc(list, func(c RowChange) bool { return c.Bytes == c.Before })
	slices.SortStableFunc(list, func(a, b RowChange) int { return cmp.Compare(Magnitude(b.Bytes-b.Before), Magnitude(a.Bytes-a.Before)) })
	return list
}
