// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// joinRows merges the rows of a GPU from before and after its UUID was known.
func (b *builder) joinRows() {
	t := b.t
	withUUID := map[int][]int{} // rows by process
	for n := range t.Rows {
		if r := &t.Rows[n]; r.UUID != "" {
			withUUID[r.Process] = append(withUUID[r.Process], n)
		}
	}
	joined := make([]bool, len(t.Rows))
	for n := range t.Rows {
		joined[n] = b.join(&t.Rows[n], withUUID[t.Rows[n].Process])
	}
	kept := t.Rows[:0]
	for n, r := range t.Rows {
		if !joined[n] {
			kept = append(kept, r)
		}
	}
	t.Rows = kept
}

// join merges a row without a UUID into the one that it belongs to, or reports false.
func (b *builder) join(r *Row, withUUID []int) bool {
	t := b.t
	if r.UUID != "" || r.Device == ledger.CPUDevice {
		return false
	}
	named := -1 // the process's only GPU, if its ordinals are unknown
	for _, n := range withUUID {
		if d := t.Processes[r.Process].Devices; r.Device >= 0 && int(r.Device) < len(d) && d[r.Device] != "" {
			if d[r.Device] == t.Rows[n].UUID {
				named = n
			}
			continue
		}
		if named >= 0 {
			return false
		}
		named = n
	}
	if named < 0 {
		return false
	}
	x := &t.Rows[named]
	x.Device = max(x.Device, r.Device)
	for i := range r.Tensors {
		x.Tensors[i] += r.Tensors[i]
		x.Cached[i] += r.Cached[i]
		x.Driver[i] += r.Driver[i]
		x.Rounding[i] += r.Rounding[i]
		x.Before[i] += r.Before[i]
		x.Host[i] += r.Host[i]
		if r.Managed != nil {
			x.Managed = withStep(x.Managed, len(t.Times), i, r.Managed[i])
		}
		if r.System != nil {
			x.System = withStep(x.System, len(t.Times), i, r.System[i])
		}
		if r.Asleep != nil {
			x.Asleep = withStep(x.Asleep, len(t.Times), i, r.Asleep[i])
		}
	}
	return true
}

// sortProcesses gives processes the order of the latest snapshot, after those that it lacks: that
// of the moments at which they were first seen depends on the moments.
func (b *builder) sortProcesses() {
	t := b.t
	here := make([]bool, len(t.Processes))
	for _, n := range b.last {
		here[n] = true
	}
	var order []int
	for n := range here {
		if !here[n] {
			order = append(order, n)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		p, q := &t.Processes[x], &t.Processes[y]
		return cmp.Or(cmp.Compare(p.Begin, q.Begin), cmp.Compare(p.PID, q.PID))
	})
	list, place := make([]ledger.Process, len(here)), make([]int, len(here))
	for i, n := range append(order, b.last...) {
		list[i], place[n] = t.Processes[n], i
	}
	t.Processes = list
	for i := range t.Rows {
		t.Rows[i].Process = place[t.Rows[i].Process]
	}
	for i := range t.Sites {
		t.Sites[i].Process = place[t.Sites[i].Process]
	}
}

func (b *builder) finish(o *observer) {
	b.sortProcesses()
	b.joinRows()
	t := b.t
	for n := range t.Processes {
		p := &t.Processes[n]
		t.Marks = append(t.Marks, Mark{Time: p.Begin, Kind: Began, Process: n, Device: ledger.UnknownDevice})
		if p.End != 0 {
			t.Marks = append(t.Marks, Mark{Time: p.End, Kind: Ended, Process: n, Device: ledger.UnknownDevice})
		}
	}
	for _, m := range append(o.ooms, t.worthMarking(o.large)...) {
		if n := t.processOf(m.pid, m.Time); n >= 0 {
			m.Process = n
			t.Marks = append(t.Marks, m.Mark)
		}
	}
	t.Marks = slices.DeleteFunc(t.Marks, func(m Mark) bool { return m.Time < t.Times[0] })
	slices.SortStableFunc(t.Marks, func(a, b Mark) int { return cmp.Compare(a.Time, b.Time) })
	slices.SortStableFunc(t.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Device, b.Device), cmp.Compare(a.UUID, b.UUID))
	})
	t.placeHost()
	for i := range t.Rows {
		for _, list := range []*[]uint64{&t.Rows[i].Beyond, &t.Rows[i].Managed, &t.Rows[i].System, &t.Rows[i].Asleep} {
			if empty(*list) {
				*list = nil
			}
		}
	}
	b.endSites()
	slices.SortStableFunc(t.Sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Live[len(b.Live)-1], a.Live[len(a.Live)-1]), cmp.Compare(a.Process, b.Process),
			cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.API, b.API), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Device, b.Device))
	})
}

// endSites drops the sites that the last snapshot lacks if they held nothing at any moment. Of
// others, the figures are not those of the end.
func (b *builder) endSites() {
	t := b.t
	last := t.Times[len(t.Times)-1]
	t.Sites = slices.DeleteFunc(t.Sites, func(x Site) bool { return x.seen != last && empty(x.Live) })
	for i := range t.Sites {
		x := &t.Sites[i]
		if x.seen != last {
			x.Site = ledger.Site{Process: x.Process, Stack: x.Stack, API: x.API, Kind: x.Kind, Device: x.Device, Segment: x.Segment}
		}
		x.seen = 0
	}
}

// placeHost moves page-locked memory to the first row of each process, from the row that was seen
// first, and drops the rows that hold nothing else.
func (t *Timeline) placeHost() {
	var rows []Row
	for list := t.Rows; len(list) > 0; {
		n := slices.IndexFunc(list, func(r Row) bool { return r.Process != list[0].Process })
		if n < 0 {
			n = len(list)
		}
		host, first := make([]uint64, len(t.Times)), len(rows)
		for _, r := range list[:n] {
			for k, bytes := range r.Host {
				host[k] += bytes
			}
			clear(r.Host)
			if !r.empty() {
				rows = append(rows, r)
			}
		}
		if len(rows) == first && !empty(host) {
			rows = append(rows, list[0])
		}
		if len(rows) > first {
			rows[first].Host = host
		}
		list = list[n:]
	}
	t.Rows = rows
}

// largeShare is the least share of the highest memory use that a large allocation has: one of so
// many.
const largeShare = 50

// worthMarking drops marks of allocations that are small beside the highest memory use.
func (t *Timeline) worthMarking(list []mark) []mark {
	var peak uint64
	for i := range t.Times {
		var sum uint64
		for _, r := range t.Rows {
			sum += r.Tensors[i] + r.Cached[i] + r.Driver[i] + r.Rounding[i] + r.Before[i]
		}
		peak = max(peak, sum)
	}
	return slices.DeleteFunc(list, func(m mark) bool { return m.Size < peak/largeShare })
}

// processOf returns the process that had a pid at a time.
func (t *Timeline) processOf(pid uint32, time uint64) int {
	for n := range t.Processes {
		if p := &t.Processes[n]; p.PID == pid && (p.End == 0 || time <= p.End) {
			return n
		}
	}
	return -1
}
