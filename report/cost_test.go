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
	const begin = "tensors were not traced for 85% of the session, since tracing may take 2% of a thread's time: "
	check := func(want string) {
		t.Helper()
		if got := Losses(s); len(got) != 1 || got[0] != (Doubt{AtStacks, begin + want}) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	check("all live tensors have kept their stacks")
	s.Stats.Cost.AwayPID, s.Stats.Cost.Paused = 42, 1
	if got := Losses(s); len(got) != 1 || !strings.HasPrefix(got[0].Text, "tensors of process 42 were not traced for 85% of the session, since ") {
		t.Errorf("one process: %+v", got)
	}
	s.Stats.Cost.Paused = 3
	if got := Losses(s); len(got) != 1 || !strings.HasPrefix(got[0].Text, "tensors of 3 processes were not traced for up to 85% of the session, since ") {
		t.Errorf("three processes: %+v", got)
	}
	s.Stats.Cost.AwayPID, s.Stats.Cost.Paused = 0, 0
	s.Processes = []ledger.Process{{PID: 42}, {PID: 43, End: 5}}
	s.Tensors = []ledger.Tensors{
		{Allocated: 400 << 20, Older: 200 << 20, Untraced: 100 << 20, LiveBytes: 200 << 20},
		{Process: 1, Allocated: 1 << 40, Untraced: 1 << 40, Older: 1 << 40}, // it has ended
	}
	check("100 MiB of tensors (25.0%) have no stack, and no verdict")
}

func TestTensorsThatWereNotTracedAreAPartOfTheirOwn(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 42, Comm: "python3", Devices: []string{"GPU-a"}}},
		Balances:  []ledger.Balance{{UUID: "GPU-a", Usage: 1000 << 20, Baseline: 600 << 20}},
		Tensors:   []ledger.Tensors{{Allocated: 400 << 20, Reserved: 400 << 20, Older: 300 << 20, Untraced: 200 << 20, LiveBytes: 100 << 20, Foreign: 600 << 20}},
	}
	sums := map[string]int64{}
	for _, h := range Holdings(s) {
		sums[h.Plane+" "+h.Mark] += h.Live
	}
	if sums["tensor [not traced]"] != 200<<20 || sums["before "+MarkOlder] != 100<<20 || sums["tensor "+MarkNoSample] != 100<<20 || sums["unexplained "+MarkUnexplained] != 0 {
		t.Errorf("got %v", sums)
	}
	x := s.Parts()[0]
	if got := PartText(s, &x); !strings.Contains(got, "tensors not traced 200 MiB + tensors before attach 100 MiB") || PartUsage(&x) != 1000<<20 {
		t.Errorf("got %s", got)
	}
}
