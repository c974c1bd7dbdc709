// SPDX-License-Identifier: Apache-2.0

// Package chunks counts the chunks of memory that the driver takes for a stream-ordered pool.
package chunks

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
	"github.com/vramprof/vramprof/tracer/ledger/intervals"
)

// Size is what a stream-ordered pool grows by, in bytes, also the pool of graphs.
const Size = 32 << 20

const (
	// maxSeen bounds the ranges of chunks of one pool that are told apart; beyond it, what it holds
	// at most is a guess.
	maxSeen = 1 << 12

	// maxBytes is the most bytes of a sum: what a file has beyond is absurd.
	maxBytes = 1 << 60
)

// Set has the chunks in which one pool's allocations lie and lay. The zero Set has none. No
// goroutine may use it while another changes it.
type Set struct {
	ends  map[uint64]uint32       // by number: live allocations that begin or end in it
	live  uint64                  // how many have live allocations
	seen  intervals.Set[struct{}] // ranges of numbers that had live allocations since the last trim
	kept  uint64                  // how many others the last trim may have left
	count uint64                  // of seen
}

// numbers returns the numbers of the first and the last chunk of an allocation.
func numbers(address, size uint64) (first, last uint64) {
	end := address + min(size, math.MaxUint64-address)
	return address / Size, max(address, end-1) / Size
}

// Add books an allocation of size bytes.
func (c *Set) Add(address, size uint64) {
	if size == 0 {
		return
	}
	if c.ends == nil {
		c.ends = make(map[uint64]uint32)
	}
	first, last := numbers(address, size)
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

// Remove undoes Add when the allocation ends.
func (c *Set) Remove(address, size uint64) {
	if size == 0 {
		return
	}
	first, last := numbers(address, size)
	c.leave(first)
	if last > first {
		c.leave(last)
		c.live -= last - first - 1
	}
}

func (c *Set) leave(n uint64) {
	if c.ends[n]--; c.ends[n] == 0 {
		delete(c.ends, n)
		c.live--
	}
}

// see notes chunks that have memory.
func (c *Set) see(from, to uint64) {
	if x := c.seen.At(from); x != nil && x.End >= to || c.seen.Len() >= maxSeen {
		return
	}
	at := intervals.Interval[struct{}]{Start: from, End: to}
	for _, x := range c.seen.Cut(less(from, 1), to+1) { // neighbors too
		at.Start, at.End = min(at.Start, x.Start), max(at.End, x.End)
		c.count -= x.Size()
	}
	c.seen.Insert(at)
	c.count += at.Size()
}

// Live returns the bytes of the chunks that have live allocations: the least that the driver holds.
func (c *Set) Live() uint64 { return c.live * Size }

// Most returns the most bytes that the driver holds for the pool.
func (c *Set) Most() uint64 { return max(c.count+c.kept, c.live) * Size }

// Trim notes that chunks without live allocations were given back, except keep bytes. each calls do
// with what lives.
func (c *Set) Trim(keep uint64, each func(do func(address, size uint64))) {
	had := c.count + c.kept
	if keep/Size >= had {
		return
	}
	c.seen, c.count, c.kept = intervals.Set[struct{}]{}, 0, less(keep/Size, c.live)
	each(func(address, size uint64) {
		first, last := numbers(address, size)
		c.see(first, last+1)
	})
}

// Carry writes or reads which chunks had live allocations; which have some follows from Add.
func (c *Set) Carry(k *codec.Codec) {
	codec.Amount(k, &c.kept, maxBytes/Size)
	type span struct{ from, to uint64 }
	var list []span
	for s := range c.seen.From(0) {
		list = append(list, span{s.Start, s.End})
	}
	codec.List(k, &list, maxSeen, func(s *span) {
		codec.Nums(k, &s.from, &s.to)
		if k.Check(s.from < s.to && s.to <= math.MaxUint64/Size+1); k.Reads() && !k.Bad {
			c.see(s.from, s.to)
		}
	})
}

func less(a, b uint64) uint64 { return max(a, b) - b }
