// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/support"
)

// TestEachSizeOfTableHasSpaceUntilAllRowsAreTaken fills the rows with tables of one size.
func TestEachSizeOfTableHasSpaceUntilAllRowsAreTaken(t *testing.T) {
	for size := support.StackDeltaBucketSmallest; size <= support.StackDeltaBucketLargest; size++ {
		entries := filesWith(fmt.Sprintf("exe_id_to_%d_stack_deltas", size))
		left := maxRows - int(entries)<<size
		if entries < maxFiles && left >= 1<<size {
			t.Errorf("%d tables of 2^%d rows leave %d rows", entries, size, left)
		}
		if entries == 0 || int(entries) > maxRows>>size {
			t.Errorf("there is space for %d tables of 2^%d rows", entries, size)
		}
	}
}
