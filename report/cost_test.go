// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTheCostOfTracingIsADoubtFromFivePercentOn(t *testing.T) {
	const second = 1_000_000_000
	of := func(pid uint32, reports, ms uint64) ledger.CostShare {
		return ledger.CostShare{PID: pid, Reports: reports, Time: ms * 1_000_000, Span: 10 * second}
	}
	for _, c := range []struct {
		name            string
		cost            ledger.TensorCost
		text, wantDoubt string
	}{
		{"unknown", ledger.TensorCost{}, "", ""},
		{"no process reported", ledger.TensorCost{Price: 1300}, "", ""},
		{
			"little", ledger.TensorCost{Price: 1300, Session: of(42, 5000, 6), Highest: of(42, 100_000, 500)},
			"Tracing took 0.06% of the busiest thread's time, and up to 5% within 10s (python3 [42], 5,000 tensors a second)", "",
		},
		{
			"much", ledger.TensorCost{Price: 1300, Session: of(42, 5000, 6), Highest: of(42, 760_000, 731)},
			"Tracing took 0.06% of the busiest thread's time, and up to 7.31% within 10s (python3 [42], 38,000 tensors a second)",
			"tracing took up to 7.31% of the busiest thread's time (python3 [42], 38,000 tensors a second): --budget 2 bounds it",
		},
		{
			"of a forgotten process, and nonsense", ledger.TensorCost{Price: 1, Session: of(7, 1, 1<<40), Highest: of(7, 1<<63, 1<<40)},
			"Tracing took 100% of the busiest thread's time, and up to 100% within 10s (process 7, 1,000,000,000,000 tensors a second)",
			"tracing took up to 100% of the busiest thread's time (process 7, 1,000,000,000,000 tensors a second): --budget 2 bounds it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 42, Comm: "python3"}}}
			s.Stats.Cost = c.cost
			if got := CostText(s); got != c.text {
				t.Errorf("got  %q\nwant %q", got, c.text)
			}
			var got []string
			for _, d := range Losses(s) {
				got = append(got, d.Text)
			}
			if want := slices.DeleteFunc([]string{c.wantDoubt}, func(s string) bool { return s == "" }); !slices.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), c.wantDoubt)
			}
		})
	}
}

func TestPausesForTheBudgetAreADoubtAboutStacks(t *testing.T) {
	s := &ledger.Snapshot{Begin: 1_000_000_000, End: 11_000_000_000}
	s.Stats.Cost = ledger.TensorCost{
		Price: 1300, Budget: 20_000, Away: 8_500_000_000,
		Highest: ledger.CostShare{PID: 42, Reports: 1, Time: 9, Span: 10}, // its price was underestimated
	}
	want := "tensors were not traced for 85% of the session, since tracing may take 2% of a thread's time: " +
		"what was allocated before the latest pause ended has no stack, and counts as allocated before the attach"
	if got := Losses(s); len(got) != 1 || got[0] != (Doubt{AtStacks, want}) {
		t.Errorf("got %+v", got)
	}
}
