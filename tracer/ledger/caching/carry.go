// SPDX-License-Identifier: Apache-2.0

package caching

import "github.com/vramprof/vramprof/tracer/ledger/codec"

// Limits on one reading.
const (
	MaxBlocks   = 1 << 20
	MaxSegments = 1 << 17
	MaxArenas   = 1 << 12
	maxDevices  = 256
	MaxSize     = 1 << 48
	MaxAddress  = 1 << 57 // five levels of page tables
	maxSum      = 1 << 60 // of counters

	partBytes = 256 << 10 // a part is little longer, but for its list of segments
)

// Carry carries a part of a reading. A writer begins with next 0, and calls it until Done; a reader
// calls it for each part in order. What is read has at most the limits, and valid indexes.
func (r *Reading) Carry(c *codec.Codec, next *int) {
	first := *next == 0
	c.Flags(&first)
	if first {
		c.Check(len(r.Arenas) == 0)
		codec.List(c, &r.Devices, maxDevices, func(d *Device) { d.carry(c) })
		codec.List(c, &r.Arenas, MaxArenas, func(a *Arena) { a.carry(c) })
		end := uint64(0)
		codec.List(c, &r.Segments, MaxSegments, func(s *Segment) { s.carry(c, &end, len(r.Arenas)) })
	}
	if c.Reads() {
		r.readBlocks(c)
		*next = len(r.Blocks)
		return
	}
	end := uint64(0)
	for ; *next < min(len(r.Blocks), MaxBlocks) && len(c.Data) < partBytes; *next++ {
		r.Blocks[*next].carry(c, &end, len(r.Arenas))
	}
}

// Done reports whether a writer has written all.
func (r *Reading) Done(next int) bool { return next >= min(len(r.Blocks), MaxBlocks) }

func (r *Reading) readBlocks(c *codec.Codec) {
	end := uint64(0)
	for !c.Bad && len(c.Rest) > 0 {
		var b Block
		b.carry(c, &end, len(r.Arenas))
		n := len(r.Blocks)
		if c.Check(n < MaxBlocks && (n == 0 || b.Address >= r.Blocks[n-1].Address+r.Blocks[n-1].Size)); c.Bad { // also between parts
			return
		}
		c.Spend(1, 40)
		r.Blocks = append(r.Blocks, b)
	}
}

func (d *Device) carry(c *codec.Codec) {
	codec.Most(c, &d.Index, maxDevices-1)
	c.Flags(&d.Exact, &d.Settled)
	codec.Nums(c, &d.OffBlocks, &d.OffBytes)
	k := &d.Counters
	for _, s := range [...]*Stat{&k.Allocated, &k.Reserved, &k.Requested, &k.Allocations} {
		for _, x := range [...]*uint64{&s.Current, &s.Peak, &s.Allocated, &s.Freed} {
			codec.Amount(c, x, maxSum)
		}
	}
	codec.Nums(c, &k.Retries, &k.OutOfMemory)
}

func (a *Arena) carry(c *codec.Codec) {
	codec.Most(c, &a.Device, maxDevices-1)
	codec.Nums(c, &a.Pool[0], &a.Pool[1], &a.Stream)
	c.Flags(&a.Small)
}

// carry carries a segment; end is that of the one before.
func (s *Segment) carry(c *codec.Codec, end *uint64, arenas int) {
	carryRange(c, &s.Address, &s.Size, end)
	base := s.Address - s.Base
	expandable := s.Base != 0
	c.Flags(&expandable)
	if expandable {
		codec.Num(c, &base)
		s.Base = s.Address - base
		c.Check(s.Base != 0 && s.Base <= s.Address)
	}
	codec.Num(c, &s.Arena)
	c.Check(int(s.Arena) < arenas)
}

func (b *Block) carry(c *codec.Codec, end *uint64, arenas int) {
	carryRange(c, &b.Address, &b.Size, end)
	rounding := b.Size - b.Requested
	codec.Num(c, &rounding)
	b.Requested = b.Size - rounding
	codec.Num(c, &b.Arena)
	codec.Most(c, &b.State, Unmapped)
	c.Flags(&b.Older, &b.Sampled)
	c.Check(int(b.Arena) < arenas)
}

// carryRange carries an address as the distance from the end of the range before, which is mostly
// 0. Ranges must not overlap, so that no sum of sizes exceeds the address space.
func carryRange(c *codec.Codec, address, size, end *uint64) {
	distance := *address - *end
	codec.Most(c, &distance, MaxAddress)
	*address = *end + distance
	codec.Most(c, size, MaxSize)
	c.Check(*address <= MaxAddress)
	*end = *address + *size
}
