// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func statsInput(s *ledger.Stats) *wire.Input {
	m := &wire.Stats{Lost: s.Lost, Stacks: s.Stacks, NoStack: s.NoStack, Torn: s.Torn}
	m.Reason, m.Truncated = byReason(s.Truncated)
	m.MissingReason, m.Missing = byReason(s.Missing)
	m.LostReason, m.LostFor = byReason(s.LostFor)
	m.LostPid, m.LostOf = columnsOf(s.LostBy)
	m.StacksPid, m.StacksOf = columnsOf(s.StacksBy)
	m.Cost = costOf(&s.Cost)
	return &wire.Input{What: &wire.Input_Stats{Stats: m}}
}

// costOf returns nil where nothing is known, as in captures of older versions.
func costOf(c *ledger.TensorCost) *wire.TensorCost {
	if c.Price == 0 {
		return nil
	}
	share := func(c ledger.CostShare) *wire.CostShare {
		return &wire.CostShare{Pid: c.PID, Reports: c.Reports, Time: c.Time, Span: c.Span}
	}
	return &wire.TensorCost{Price: c.Price, Session: share(c.Session), Highest: share(c.Highest), Latest: share(c.Latest), Budget: c.Budget, Away: c.Away, AwayPid: c.AwayPID, Paused: c.Paused}
}

// byReason returns two columns: reasons and counts.
func byReason(counts map[string]uint64) (reasons [][]byte, of []uint64) {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		reasons, of = append(reasons, []byte(reason)), append(of, counts[reason])
	}
	return reasons, of
}

// columnsOf returns two columns: pids and counts.
func columnsOf(counts map[uint32]uint64) (pids []uint32, of []uint64) {
	for _, pid := range slices.Sorted(maps.Keys(counts)) {
		pids, of = append(pids, pid), append(of, counts[pid])
	}
	return pids, of
}

// reasonsOf is the inverse of byReason. It returns nil for empty columns.
func reasonsOf(reasons [][]byte, of []uint64) map[string]uint64 {
	if len(reasons) == 0 {
		return nil
	}
	counts := make(map[string]uint64, len(reasons))
	for i, reason := range reasons {
		counts[clean(reason)] = of[i]
	}
	return counts
}

// countsOf is the inverse of columnsOf. It returns nil for empty columns.
func countsOf(pids []uint32, of []uint64) map[uint32]uint64 {
	if len(pids) == 0 {
		return nil
	}
	counts := make(map[uint32]uint64, len(pids))
	for i, pid := range pids {
		counts[pid] = of[i]
	}
	return counts
}

func setStats(m *wire.Stats, books ledger.Books) error {
	if len(m.GetReason()) != len(m.GetTruncated()) || len(m.GetMissingReason()) != len(m.GetMissing()) ||
		len(m.GetLostReason()) != len(m.GetLostFor()) || len(m.GetLostPid()) != len(m.GetLostOf()) || len(m.GetStacksPid()) != len(m.GetStacksOf()) {
		return errColumns
	}
	s := ledger.Stats{Lost: m.GetLost(), Stacks: m.GetStacks(), NoStack: m.GetNoStack(), Torn: m.GetTorn()}
	s.Truncated, s.Missing = reasonsOf(m.Reason, m.Truncated), reasonsOf(m.MissingReason, m.Missing)
	s.LostFor = reasonsOf(m.LostReason, m.LostFor)
	s.LostBy, s.StacksBy = countsOf(m.LostPid, m.LostOf), countsOf(m.StacksPid, m.StacksOf)
	cost := m.GetCost()
	s.Cost = ledger.TensorCost{
		Price: cost.GetPrice(), Session: shareOf(cost.GetSession()), Highest: shareOf(cost.GetHighest()), Latest: shareOf(cost.GetLatest()),
		Budget: cost.GetBudget(), Away: cost.GetAway(), AwayPID: cost.GetAwayPid(), Paused: cost.GetPaused(),
	}
	books.Tell(s)
	return nil
}

func shareOf(m *wire.CostShare) ledger.CostShare {
	return ledger.CostShare{PID: m.GetPid(), Reports: m.GetReports(), Time: m.GetTime(), Span: m.GetSpan()}
}
