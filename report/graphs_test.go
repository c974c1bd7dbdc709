// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/report/balance"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// TestTheBalanceNamesTheCacheOfCUDAGraphs: explain has it as a row, by the same rule.
func TestTheBalanceNamesTheCacheOfCUDAGraphs(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7, Comm: "python3"}}, Caches: []ledger.AllocatorCache{{Device: caching.Device{Index: 0}, Cache: caching.Cache{Arenas: []caching.ArenaCache{
		{Arena: caching.Arena{Pool: caching.PoolID{3, 0}}, Free: 12 << 20}, {Arena: caching.Arena{Pool: caching.PoolID{0, 4}}, Free: 5 << 20}, {Free: 3 << 20},
	}}}}}
	for device, want := range map[int32]string{
		0: "20.0 MiB: PyTorch cache 20.0 MiB, of it CUDA graphs 12.0 MiB",
		1: "20.0 MiB: PyTorch cache 20.0 MiB",
	} {
		b := &balance.Balance{Device: device, Used: 20 << 20, Rows: []balance.Row{{Plane: balance.Cache, Bytes: 20 << 20}}}
		if got := usedText(s, nil, b); got != want {
			t.Errorf("device %d: %q, want %q", device, got, want)
		}
	}
}
