// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"cmp"
	"slices"
)

// Sizes of c10/cuda/CUDACachingAllocator.cpp (PyTorch 1.13 to 2.11).
const (
	smallSize = 1 << 20  // kSmallSize: larger requests go to the arena of large blocks
	smallPage = 2 << 20  // kSmallBuffer: what an expandable segment of small blocks maps at once
	largePage = 20 << 20 // kLargeBuffer: the same of large blocks
)

// Cache is what the cache of one device is made of, in bytes:
//
//	Reserved = Allocated + Cached
//	Cached   = Idle + Pending + Private + Streams + Small + Held
type Cache struct {
	Reserved, Allocated uint64
	Requested           uint64 // part of Allocated that the program asked for; the rest is rounding
	Cached              uint64

	// Whole segments, or pages of expandable ones, without a live block: empty_cache() gives them
	// back, and the allocator does before it runs out of memory.
	Idle uint64
	// Freed by the program; a stream that it was recorded on may still use it.
	Pending uint64
	// Free in pools of CUDA graphs and MemPools: only these get it.
	Private uint64
	// Free in segments with live blocks of other streams than Main: only these streams get it.
	Streams uint64
	// Free blocks of at most 1 MiB in arenas of large ones: each request there is larger.
	Small uint64
	// The rest: free in segments that a live block keeps from going back.
	Held uint64

	Main        uint64 // the stream that most bytes of the default pool are allocated on
	LargestFree uint64 // the longest run of free bytes in one segment
	Arenas      []ArenaCache
}

// ArenaCache is the part of a cache that is of one arena.
type ArenaCache struct {
	Arena
	Segments                         uint64
	Blocks                           uint64 // live
	Reserved, Allocated, Older, Idle uint64 // bytes; Older is part of Allocated
	Free                             uint64 // in no live block, with Idle
	LargestFree                      uint64
}

// divider sums the segments of one reading.
type divider struct {
	*Reading
	arenas []ArenaCache
	parts  []parts // by arena
}

// parts are the free bytes of an arena that neither go back nor wait.
type parts struct{ held, small, pending, requested uint64 }

// Divide divides the cache of each device, in the order of Devices. Its figures are those of the
// blocks, not of the counters: they differ where a device is not Exact.
func (r *Reading) Divide() (list []Cache) {
	d := divider{Reading: r, arenas: make([]ArenaCache, len(r.Arenas)), parts: make([]parts, len(r.Arenas))}
	for i := range r.Arenas {
		d.arenas[i].Arena = r.Arenas[i]
	}
	at := 0
	for i := range r.Segments {
		at = d.segment(&r.Segments[i], at)
	}
	for i := range r.Devices {
		list = append(list, d.cache(r.Devices[i].Index))
	}
	return list
}

// segment sums a segment, whose blocks begin at index at or later. It returns where the next
// begins.
func (d *divider) segment(s *Segment, at int) int {
	end := s.Address + s.Size
	for at < len(d.Blocks) && d.Blocks[at].Address < s.Address {
		at++
	}
	first := at
	live := false
	for ; at < len(d.Blocks) && d.Blocks[at].Address < end; at++ {
		live = live || d.Blocks[at].State == Active || d.Blocks[at].State == PendingFree
	}
	a, p := &d.arenas[s.Arena], &d.parts[s.Arena]
	a.Segments++
	a.Reserved += s.Size
	for i := first; i < at; i++ {
		b := &d.Blocks[i]
		switch b.State {
		case Active:
			a.Blocks++
			a.Allocated += b.Size
			p.requested += min(b.Requested, b.Size)
			if b.Older {
				a.Older += b.Size
			}
		case PendingFree:
			p.pending += b.Size
		case Inactive:
			d.free(s, b, live)
		}
	}
	return at
}

// free sums a free block of a segment with or without live ones.
func (d *divider) free(s *Segment, b *Block, live bool) {
	a, p := &d.arenas[s.Arena], &d.parts[s.Arena]
	a.Free += b.Size
	a.LargestFree = max(a.LargestFree, b.Size)
	idle := b.Size
	switch {
	case s.Base != 0:
		idle = wholePages(s.Base, b, a.Small)
	case live:
		idle = 0
	}
	a.Idle += idle
	if rest := b.Size - idle; !a.Small && b.Size <= smallSize {
		p.small += rest
	} else {
		p.held += rest
	}
}

// NextPage returns where the page of an expandable segment ends that an address lies in, and the
// end of other segments.
func (s *Segment) NextPage(address uint64, small bool) uint64 {
	if s.Base == 0 || address < s.Base {
		return s.Address + s.Size
	}
	page := pageOf(small)
	return s.Base + ((address-s.Base)/page+1)*page
}

func pageOf(small bool) uint64 {
	if small {
		return smallPage
	}
	return largePage
}

// wholePages returns the bytes of whole pages in a block of an expandable segment.
func wholePages(base uint64, b *Block, small bool) uint64 {
	page := pageOf(small)
	if b.Address < base {
		return 0
	}
	from := (b.Address - base + page - 1) / page
	to := (b.Address + b.Size - base) / page
	return (max(from, to) - from) * page
}

// cache sums the arenas of a device.
func (d *divider) cache(device int32) Cache {
	c := Cache{Main: d.main(device)}
	for i := range d.arenas {
		a, p := &d.arenas[i], &d.parts[i]
		if a.Device != device || a.Segments == 0 {
			continue
		}
		c.Reserved += a.Reserved
		c.Allocated += a.Allocated
		c.Requested += p.requested
		c.Pending += p.pending
		c.LargestFree = max(c.LargestFree, a.LargestFree)
		switch {
		case a.Pool.Private():
			a.Idle = 0 // it goes back with its pool
			c.Private += a.Free
		case a.Stream != c.Main:
			c.Idle += a.Idle
			c.Streams += a.Free - a.Idle
		default:
			c.Idle += a.Idle
			c.Small += p.small
			c.Held += p.held
		}
		c.Arenas = append(c.Arenas, *a)
	}
	c.Cached = c.Idle + c.Pending + c.Private + c.Streams + c.Small + c.Held
	slices.SortFunc(c.Arenas, func(x, y ArenaCache) int {
		return cmp.Or(cmp.Compare(y.Reserved, x.Reserved), slices.Compare(x.Pool[:], y.Pool[:]), cmp.Compare(x.Stream, y.Stream))
	})
	return c
}

// main returns the stream with most allocated bytes of the default pool, of equals the lowest.
func (d *divider) main(device int32) (stream uint64) {
	on := map[uint64]uint64{}
	for i := range d.arenas {
		if a := &d.arenas[i]; a.Device == device && !a.Pool.Private() {
			on[a.Stream] += a.Allocated
		}
	}
	most := on[0]
	for s, bytes := range on {
		if bytes > most || bytes == most && bytes > 0 && s < stream {
			stream, most = s, bytes
		}
	}
	return stream
}
