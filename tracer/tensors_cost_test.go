// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTheCostOfTensorsIsReportsTimesTheirPrice: each allocation and each free is a report.
func TestTheCostOfTensorsIsReportsTimesTheirPrice(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", nil, "threads 2", "repeat 1000", "alloc b 1000", "free b", "end", "end", "totals", "wait")
	p.totals()
	const reports = 2 * 2 * 1000
	m.eventually("all reports are counted", func() bool { return m.snapshot().Stats.Cost.Session.Reports >= reports })
	cost := m.snapshot().Stats.Cost
	for what, share := range map[string]ledger.CostShare{"session": cost.Session, "highest": cost.Highest, "latest": cost.Latest} {
		if share.PID != p.pid() || share.Reports != reports || share.Time < reports*cost.Price || share.Span < 1e9 {
			t.Errorf("%s: got %+v, want %d reports of process %d", what, share, reports, p.pid())
		}
	}
	if cost.Price < 100 {
		t.Errorf("a report takes %d ns", cost.Price)
	}
}

func TestWithoutTensorsTheirCostIsUnknown(t *testing.T) {
	m := newMachine(t, 1)
	m.trace(func(c *Config) { c.NoTensors = true })
	p := m.follow("2.6", nil, "alloc a 1000", "totals", "wait")
	p.totals()
	if cost := m.snapshot().Stats.Cost; cost.Price != 0 || m.Tracer.tensors.Report(p.pid()) {
		t.Errorf("got %+v", cost)
	}
}
