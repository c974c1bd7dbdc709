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
			"tracing took up to 7.31% of the busiest thread's time (python3 [42], 38,000 tensors a second): --budget 0 does not trace tensors",
		},
		{
			"of a forgotten process, and nonsense", ledger.TensorCost{Price: 1, Session: of(7, 1, 1<<40), Highest: of(7, 1<<63, 1<<40)},
			"Tracing took 100% of the busiest thread's time, and up to 100% within 10s (process 7, 1,000,000,000,000 tensors a second)",
			"tracing took up to 100% of the busiest thread's time (process 7, 1,000,000,000,000 tensors a second): --budget 0 does not trace tensors",
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
