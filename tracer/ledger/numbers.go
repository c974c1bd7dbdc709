// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/intervals"
)

func minus(a, b uint64) uint64 { return max(a, b) - b }

// take adds a part to a sum, up to the bounds of the sum.
func (sum *count) take(part *count) {
	part.objects = min(part.objects, maxTensors-sum.objects)
	part.bytes = min(part.bytes, maxTensors-sum.bytes)
	sum.objects += part.objects
	sum.bytes += part.bytes
}

// count is a number of allocations and their bytes.
type count struct{ objects, bytes uint64 }

// apportion divides a total by weights into whole numbers that add up to it: it rounds each share
// down and gives the rest to those with the largest remainders, the first of equal ones. It returns
// false if no weight is above 0. The sums of weights and of total must fit 64 bits.
func apportion(total uint64, weights []uint64) ([]uint64, bool) {
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return nil, total == 0
	}
	shares, left := make([]uint64, len(weights)), total
	remainders, order := make([]uint64, len(weights)), make([]int, len(weights))
	for i, w := range weights {
		hi, lo := bits.Mul64(total, w)
		shares[i], remainders[i] = bits.Div64(hi, lo, sum) // w <= sum, so the share fits
		left -= shares[i]
		order[i] = i
	}
	if left > 0 {
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(remainders[b], remainders[a]), cmp.Compare(a, b))
		})
		for _, i := range order[:left] {
			shares[i]++
		}
	}
	return shares, true
}

// scale returns x * to / from, up to what a device can have.
func scale(x, to, from uint64) uint64 {
	if from == 0 {
		return 0
	}
	hi, lo := bits.Mul64(x, to)
	if hi >= from {
		return maxTensors
	}
	n, _ := bits.Div64(hi, lo, from)
	return min(n, maxTensors)
}

// span returns the range of size bytes from address, cut off at the end of all addresses.
func span(address, size uint64) (start, end uint64) {
	return address, address + min(size, math.MaxUint64-address)
}

// mapping is a range of addresses that leads to physical memory.
type mapping = intervals.Interval[target]

// target is what a mapping leads to.
type target struct {
	memory uint64 // its number; 0 for an alias, which is not booked
	time   uint64 // of the mapping
}

// SizeClass returns the size class of a block, as the kernel half computes it: four classes per
// doubling, from 512 bytes on.
func SizeClass(size uint64) int {
	if size < 512 {
		return 0
	}
	log := bits.Len64(size>>9) - 1
	return min(1+4*log+int(size>>(log+7)&3), SizeClasses-1)
}

// share is the part of a site in the exact totals of its class.
type share struct{ live, freed count }

// SizeClasses is the number of size classes of blocks.
const SizeClasses = 128
