// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// heard keeps the latest counters that books were told.
type heard struct{ ledger.Stats }

func (*heard) Apply(*ledger.Event) {}

func (h *heard) Tell(in ledger.Input) { h.Stats, _ = in.(ledger.Stats) }

func TestTheCostOfTracingIsReadAsItWasWritten(t *testing.T) {
	share := func(n uint64) ledger.CostShare {
		return ledger.CostShare{PID: uint32(n), Reports: n + 1, Time: n + 2, Span: n + 3}
	}
	for name, cost := range map[string]ledger.TensorCost{
		"unknown, or a capture of an older version": {},
		"known": {Price: 1300, Session: share(10), Highest: share(20), Latest: share(30), Budget: 20_000, Away: 7, AwayPID: 8, Paused: 9},
	} {
		var h heard
		m := statsInput(&ledger.Stats{Lost: 7, Cost: cost}).GetWhat().(*wire.Input_Stats).Stats
		if name != "known" && m.Cost != nil {
			t.Errorf("%s: it takes room in the file", name)
		}
		if err := setStats(m, &h); err != nil || h.Cost != cost || h.Lost != 7 {
			t.Errorf("%s: got %+v, %v; want %+v", name, h.Cost, err, cost)
		}
	}
}
