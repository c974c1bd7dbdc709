// SPDX-License-Identifier: Apache-2.0

package allocsim

// Order is an order of the addresses that the driver gives to segments. The allocator chooses among
// free blocks of equal size the one with the lowest address, so the driver takes part in its
// decisions.
type Order int

const (
	// Recorded gives the segments the addresses that they had in the recorded run, for Verify.
	Recorded Order = -1
	Rising   Order = 0
	Falling  Order = 1
	// Each larger Order is a permutation of its own.
)

// Orders is how many orders of addresses a range is made of: Order 0 to Orders-1.
const Orders = 12

// Options are the GPU on which a trace is replayed.
type Options struct {
	Capacity uint64 // bytes that the driver can give to PyTorch; 0: unlimited
	Total    uint64 // bytes of the GPU's memory, for Settings.Fraction; 0: Trace.Total
	Order    Order
}

// Result is what a replay did.
type Result struct {
	PeakReserved   uint64 // bytes
	PeakAllocated  uint64 // bytes of blocks, rounded
	PeakRequested  uint64 // bytes, before rounding
	PeakOp         int    // operation after which PeakReserved was reached first
	PeakAllocOp    int    // operation after which PeakAllocated was reached first
	EndReserved    uint64
	AtPeak         Cache // at PeakOp
	Failed         int   // first operation that ran out of memory, or -1. The replay ends there.
	FailedReserved uint64
	Retries        int // how often the allocator gave its cache back because it was out of memory
	Segments       int // segments or virtual ranges that were reserved
	// OrderMatters: the allocator chose by address, so another Order can give other figures.
	OrderMatters bool
}

// Cache is reserved memory that no block uses.
type Cache struct {
	Whole uint64 // bytes of segments without blocks
	Stuck uint64 // bytes next to blocks that live
}
