// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/vramprof/vramprof/tracer/ledger/intervals"

// mapping is a range of addresses that leads to physical memory.
type mapping = intervals.Interval[target]

// target is what a mapping leads to.
type target struct {
	memory uint64 // its number; 0 for an alias, which is not booked
	time   uint64 // of the mapping
}
