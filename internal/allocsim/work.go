// SPDX-License-Identifier: Apache-2.0

package allocsim

import "errors"

// What a replay may look at besides the block of each operation: pieces, free lists and pools. A
// training of a million allocations needs 3 for each operation at most; a hostile trace of as many
// pieces as operations needs their product.
const (
	workOf    = 1 << 6  // for each operation and each part of the start
	leastWork = 1 << 24 // for all
)

var errTooMuchWork = errors.New("it needs far more work than the allocator of a real program")

// spend reports whether a replay may look at n more pieces. It may not after the first refusal,
// with which the replay ends: step returns the error.
func (h *heap) spend(n int) bool {
	h.work -= int64(n)
	return h.work >= 0
}

// workFor is what a trace may need.
func workFor(t *Trace) int64 {
	n := int64(len(t.Ops))
	for i := range t.Start {
		n += int64(len(t.Start[i].Parts))
	}
	return leastWork + n*workOf
}
