// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/balance"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestIdleIsNeverMoreThanTheRounding(t *testing.T) {
	for _, c := range []struct {
		gap        int64
		idle, want uint64
	}{
		{10, 0, 0}, {0, 10, 0}, {-10, 10, 0}, {10, 4, 4}, {10, 40, 10},
	} {
		s := &ledger.Snapshot{Processes: make([]ledger.Process, 1), Balances: []ledger.Balance{{UUID: "GPU-a", Usage: uint64(10 + c.gap), Baseline: 10, Rounding: uint64(max(c.gap, 0)), Idle: c.idle}}}
		if got := PartIdle(s, &s.Parts()[0]); got != c.want {
			t.Errorf("gap %d, idle %d: %d, want %d", c.gap, c.idle, got, c.want)
		}
		s.Balances[0].Idle, s.Pools = 0, []ledger.Pool{{Least: c.idle, Held: c.idle}, {Used: 1, Least: 1, Held: 1}, {Device: 1, Least: 9, Held: 9}}
		if got := PartIdle(s, &s.Parts()[0]); got != c.want {
			t.Errorf("gap %d, a pool that keeps %d: %d, want %d", c.gap, c.idle, got, c.want)
		}
	}
}

func TestPoolsAreOneLineForEachDevice(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7, Comm: "a"}, {PID: 8, Comm: "b"}, {PID: 9, Comm: "c", End: 1}},
		Pools: []ledger.Pool{
			{Device: -1, Used: reporttest.MiB, Least: reporttest.MiB, Held: 2 * reporttest.MiB},
			{Device: 0, Used: reporttest.MiB, Least: reporttest.MiB, Held: 2 * reporttest.MiB},
			{Device: 0, Handle: 1, Used: 4 * reporttest.MiB, Least: 4 * reporttest.MiB, Held: 4 * reporttest.MiB},
			{Device: 0, Handle: 2, Used: 8 * reporttest.MiB, Least: 8 * reporttest.MiB, Held: 8 * reporttest.MiB, Destroyed: true},
			{Process: 1, Device: 0, Used: reporttest.MiB, Least: reporttest.MiB, Held: 3 * reporttest.MiB},
			{Process: 1, Device: 1, Used: reporttest.MiB, Least: reporttest.MiB, Held: reporttest.MiB},
			{Process: 1, Device: 2, Handle: 1, Objects: 1, Used: reporttest.MiB, Least: reporttest.MiB, Held: reporttest.MiB},
			{Process: 1, Device: 2, Handle: 2, Least: 32 * reporttest.MiB, Held: 32 * reporttest.MiB},
			{Process: 2, Device: 0, Used: reporttest.MiB, Least: reporttest.MiB, Held: 2 * reporttest.MiB},
		},
	}
	want := []string{
		"a [7]: async pool: 1.00 MiB used, may hold up to 2.00 MiB",
		"a [7] on cuda:0: 2 async pools: 5.00 MiB used, may hold up to 6.00 MiB",
		"b [8] on cuda:0: async pool: 1.00 MiB used, may hold up to 3.00 MiB",
		"b [8] on cuda:2: 2 async pools: 1.00 MiB used, they hold 33.0 MiB",
	}
	if got := poolTexts(s); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPoolsThatGrowHaveAText(t *testing.T) {
	for pools, want := range map[int]string{
		1:   "a memory pool holds 1.00 GiB unused: destroy pools that are done (cudaMemPoolDestroy), or trim them (cudaMemPoolTrimTo)",
		255: "255 memory pools hold 1.00 GiB unused: destroy pools that are done (cudaMemPoolDestroy), or trim them (cudaMemPoolTrimTo)",
	} {
		if got := poolsHold(&balance.Row{Pools: pools, Pooled: 1 << 30}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
