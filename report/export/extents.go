// SPDX-License-Identifier: Apache-2.0

package export

import "github.com/vramprof/vramprof/tracer/ledger/intervals"

// class is what an extent is.
type class uint8

const (
	tensor class = iota // a block of PyTorch's allocator
	whole               // an allocation, which one call made and one call frees
	mapped              // mapped physical memory; mappings side by side may be one segment
	// Memory before the attach that tensors lie in, from the begin of the trace on.
	older
	found // likewise, where something else was before: from some moment on
)

// extent is a range of addresses of one process.
type extent = intervals.Interval[contents]

// extents never overlap.
type extents = intervals.Set[contents]

// contents is what an extent has.
type contents struct {
	stack, time uint64
	api         string
	memory      uint64 // of class mapped: number of the physical memory
	id          uint32 // of a segment; of a tensor, that of the segment it begins in
	device      int32  // of a tensor, that of its segment
	class       class
}

// guessed reports whether the memory is older than the attach, so that only its tensors are known.
func (c *contents) guessed() bool { return c.class == older || c.class == found }
