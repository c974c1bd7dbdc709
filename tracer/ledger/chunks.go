// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/vramprof/vramprof/tracer/ledger/intervals"

// rounding is what the driver takes for allocations in addition to their bytes.
type rounding struct {
	known int64  // certainly; negative while a total pays for pages that another one has
	most  uint64 // perhaps, in addition
}

func (x *rounding) add(y rounding) { x.known, x.most = x.known+y.known, x.most+y.most }

// page is a page of allocations of at most smallMost.
type page struct{ live, total uint32 } // how many live there, and which of heap.totals pays for it

// chunks are the parts of the address space that a pool took memory for. Their size is poolChunk.
type chunks struct {
	ends  map[uint64]uint32       // by number: live allocations that begin or end in it
	live  uint64                  // how many have live allocations
	seen  intervals.Set[struct{}] // ranges of numbers that had live allocations since the last trim
	kept  uint64                  // how many others the last trim may have left
	count uint64                  // of seen
}

// chunksOf returns the numbers of the first and the last chunk of an allocation.
func chunksOf(address, size uint64) (first, last uint64) {
	_, end := span(address, size)
	return address / poolChunk, max(address, end-1) / poolChunk
}

func (c *chunks) add(address, size uint64) {
	if size == 0 {
		return
	}
	if c.ends == nil {
		c.ends = make(map[uint64]uint32)
	}
	first, last := chunksOf(address, size)
	if c.ends[first]++; c.ends[first] == 1 {
		c.live++
	}
	if last > first {
		if c.ends[last]++; c.ends[last] == 1 {
			c.live++
		}
		c.live += last - first - 1 // it has these alone
	}
	c.see(first, last+1)
}

func (c *chunks) remove(address, size uint64) {
	if size == 0 {
		return
	}
	first, last := chunksOf(address, size)
	c.leave(first)
	if last > first {
		c.leave(last)
		c.live -= last - first - 1
	}
}

func (c *chunks) leave(n uint64) {
	if c.ends[n]--; c.ends[n] == 0 {
		delete(c.ends, n)
		c.live--
	}
}

// see notes chunks that have memory.
func (c *chunks) see(from, to uint64) {
	if x := c.seen.At(from); x != nil && x.End >= to || c.seen.Len() >= maxSeen {
		return
	}
	at := intervals.Interval[struct{}]{Start: from, End: to}
	for _, x := range c.seen.Cut(minus(from, 1), to+1) { // neighbors too
		at.Start, at.End = min(at.Start, x.Start), max(at.End, x.End)
		c.count -= x.Size()
	}
	c.seen.Insert(at)
	c.count += at.Size()
}

// most returns the most that the driver holds for these chunks.
func (c *chunks) most() uint64 { return max(c.count+c.kept, c.live) * poolChunk }

// trim notes that chunks without live allocations were given back, except keep bytes. each calls do
// with what lives.
func (c *chunks) trim(keep uint64, each func(do func(address, size uint64))) {
	had := c.count + c.kept
	if keep/poolChunk >= had {
		return
	}
	c.seen, c.count, c.kept = intervals.Set[struct{}]{}, 0, minus(keep/poolChunk, c.live)
	each(func(address, size uint64) {
		first, last := chunksOf(address, size)
		c.see(first, last+1)
	})
}

func wholePages(size uint64) uint64 { return (size + driverPage - 1) &^ (driverPage - 1) }

// deviceLive is a part of the books of one device.
type deviceLive struct {
	device int32
	kind   Kind // of the allocations
	bytes  uint64
	rounding
}
