// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/intervals"
)

// mapping is a range of addresses that leads to physical memory.
type mapping = intervals.Interval[target]

// target is what a mapping leads to.
type target struct {
	memory uint64 // its number; 0 for an alias, which is not booked
	time   uint64 // of the mapping
}

// span returns the range of size bytes from address, cut off at the end of all addresses.
func span(address, size uint64) (start, end uint64) {
	return address, address + min(size, math.MaxUint64-address)
}
