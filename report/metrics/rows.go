// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// Planes of a GPU's memory.
var planes = [...]string{report.PlaneUnexplained, report.PlaneTensor, report.PlaneDriver, report.PlaneCache, report.PlaneRounding, report.PlaneBefore}

var outside = [...]string{report.PlaneHost, report.PlaneManaged, report.PlaneSystem, report.PlaneAsleep, report.PlaneImported}

// row has the figures of one set of labels. What is counted stays from one snapshot to the next.
type row struct {
	labels
	origin origin
	used   bool // a process of the snapshot has it

	running    bool // a running process has GPU memory in it
	planes     [len(planes)]uint64
	outside    [len(outside)]uint64
	overbooked uint64
	peak, nvml uint64
	allocator  allocatorRow
	untraced   uint64 // part of the tensors
	verdicts   [verdict.Leaking + 1]judged

	memory   amounts // by kind
	failures amounts // by error
	ooms     uint64
}

// allocatorRow is what was read of the PyTorch allocators of running processes.
type allocatorRow struct {
	read          bool
	kinds         map[report.CacheKind]uint64 // bytes of the caches
	retries, peak uint64
}

type judged struct {
	lines, bytes uint64
	rate         float64
}

// forget clears what is of one snapshot.
func (r *row) forget() {
	*r = row{labels: r.labels, origin: r.origin, memory: r.memory, failures: r.failures, ooms: r.ooms}
}

// table has the rows, at most maxRows and those that stand in for the rest.
type table struct {
	rows   map[labels]*row
	merged map[labels]*row // the rest, one for each GPU
	shares quota.Quota
	held   map[origin]int      // rows by who chose their labels
	owned  map[origin]int      // and by owner
	beyond map[labels]struct{} // of this snapshot
}

func newTable() *table {
	return &table{rows: map[labels]*row{}, merged: map[labels]*row{}, shares: quota.New(maxRows), held: map[origin]int{}, owned: map[origin]int{}}
}

// begin starts a snapshot.
func (t *table) begin() {
	t.beyond = map[labels]struct{}{}
	t.each((*row).forget)
}

func (t *table) each(do func(*row)) {
	for _, r := range t.rows {
		do(r)
	}
	for _, r := range t.merged {
		do(r)
	}
}

// of returns the row of labels, or the one that stands in for those beyond the limits.
func (t *table) of(l labels, from origin) *row {
	r := t.rows[l]
	if r == nil && t.shares.Room(t.held[from], t.owned[from.owner()]) {
		r = newRow(l, from)
		t.rows[l] = r
		t.shares.Take()
		t.held[from]++
		t.owned[from.owner()]++
	}
	if r == nil {
		t.beyond[l] = struct{}{}
		m := l.merged()
		if r = t.merged[m]; r == nil {
			r = newRow(m, origin{})
			t.merged[m] = r
		}
	}
	r.used = true
	return r
}

func newRow(l labels, from origin) *row {
	return &row{labels: l, origin: from, memory: amounts{}, failures: amounts{}}
}

// end drops the rows that no process has any more. Those without a workload and a user stay, as
// there are few GPUs: their counters go on.
func (t *table) end() {
	for l, r := range t.rows {
		if r.used || l == (labels{gpu: l.gpu, uuid: l.uuid}) {
			continue
		}
		delete(t.rows, l)
		t.shares.Give()
		giveOne(t.held, r.origin)
		giveOne(t.owned, r.origin.owner())
	}
}

func giveOne(held map[origin]int, of origin) {
	if held[of]--; held[of] == 0 {
		delete(held, of)
	}
}
