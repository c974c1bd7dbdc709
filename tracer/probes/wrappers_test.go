// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"math/rand/v2"
	"testing"

	"github.com/vramprof/vramprof/bpf"
)

func TestRangesAreCoveredByAlignedBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		from := random.Uint64N(1 << 40)
		to := from + 1 + random.Uint64N(1<<random.Uint64N(20))
		at, blocks := from, 0
		for ; at < to; blocks++ {
			size := largestBlock(at, to)
			if size == 0 || size&(size-1) != 0 || at%size != 0 || at+size > to {
				t.Fatalf("block of %d bytes at %#x in %#x to %#x", size, at, from, to)
			}
			at += size
		}
		if blocks > 2*20 {
			t.Fatalf("%#x to %#x takes %d blocks", from, to, blocks)
		}
	}
}

func TestNumbersOfWrappersAreUsedAgainAndEndOpenCalls(t *testing.T) {
	table := wrapperTable{rows: make([]bpf.Wrapper, 4), next: 1}
	if a, b, c, none := table.take(), table.take(), table.take(), table.take(); a != 1 || b != 2 || c != 3 || none != 0 {
		t.Errorf("took %d, %d, %d, %d; want 1, 2, 3 and no more", a, b, c, none)
	}
	table.give(0)
	table.give(2)
	if table.rows[2].Retired == 0 {
		t.Error("calls that are open under a number that was given back do not count as ended")
	}
	if again, none := table.take(), table.take(); again != 2 || none != 0 {
		t.Errorf("took %d, %d; want 2 again, and no more", again, none)
	}
}
