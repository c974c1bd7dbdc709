// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// A walk that finds more than the allocator had at once has seen parts of a running step: the
// weights were there all the time.
func TestWhatLastsIsNotScaledDownForWhatAStepTakes(t *testing.T) {
	for _, c := range []struct {
		parts modelpart.Bytes
		lasts bool
	}{
		{modelpart.Bytes{modelpart.Weight: 40}, true}, {modelpart.Bytes{modelpart.None: 80}, false}, {modelpart.Bytes{}, false},
		{modelpart.Bytes{modelpart.None: 5, modelpart.State: 5}, false}, {modelpart.Bytes{modelpart.Buffer: 3, modelpart.State: 3, modelpart.None: 5}, true},
	} {
		if h := (Held{Holder: Holder{Parts: c.parts}}); h.Lasts() != c.lasts {
			t.Errorf("%v lasts: %v", c.parts, h.Lasts())
		}
	}
	for _, c := range []struct {
		total  uint64
		fitted []uint64
		excess uint64
	}{{200, []uint64{40, 80, 10}, 0}, {100, []uint64{40, 60, 0}, 30}, {30, []uint64{30, 0, 0}, 100}} {
		parts := []rankedBytes{{foundTwice: 40}, {foundTwice: 80}, {foundMoving: 10}}
		fitted, sum, excess := fitRanks(parts, []bool{true, false, false}, c.total)
		if !slices.Equal(fitted, c.fitted) || sum != min(c.total, 130) || excess != c.excess {
			t.Errorf("of %d: %v, sum %d, excess %d", c.total, fitted, sum, excess)
		}
	}
}
