// SPDX-License-Identifier: Apache-2.0

package text

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTablesShowARankOnlyWhole(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 4242, Comm: "python3", End: 1, Workload: ledger.Workload{Rank: "12"}}}}
	for room, want := range map[int]string{28: "python3 [4242] ended rank 12", 27: "python3 [4242] ended"} {
		if got := ownerName(s, 0, room); got != want {
			t.Errorf("%d columns: got %q, want %q", room, got, want)
		}
	}
}
