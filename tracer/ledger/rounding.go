// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/vramprof/vramprof/tracer/ledger/intervals"

// How the driver takes memory of a GPU for allocations, as drivers 535 and 550 do: see
// docs/planes.md. Physical memory of cuMemCreate has whole pages.
const (
	// driverPage is the granularity in which the driver takes memory of a GPU.
	driverPage = 2 << 20

	// smallMost is the largest allocation that shares a page with others. A larger one has pages of
	// its own.
	smallMost = 1 << 20

	// poolChunk is what a stream-ordered pool grows by, also the pool of graphs.
	poolChunk = 32 << 20

	// maxSeen bounds the ranges of chunks of one pool that are told apart; beyond it, what it holds
	// at most is a guess.
	maxSeen = 1 << 12
)

func wholePages(size uint64) uint64 { return (size + driverPage - 1) &^ (driverPage - 1) }

// rounding is what the driver takes for allocations in addition to their bytes.
type rounding struct {
	known int64  // certainly; negative while a total pays for pages that another one has
	most  uint64 // perhaps, in addition
}

func (x *rounding) add(y rounding) { x.known, x.most = x.known+y.known, x.most+y.most }

// page is a page of allocations of at most smallMost.
type page struct{ live, total uint32 } // how many live there, and which of process.totals pays for it

// takeRoom books what the driver takes for an allocation that begins. Pools book their own.
func (p *heap) takeRoom(b *entry) {
	s := p.sites[b.site]
	if s.space == Objects {
		p.countOfClient(b.address, 1)
		return
	}
	if p.options.unrounded || b.size == 0 {
		return
	}
	switch t := s.total; {
	case s.kind == Array:
		p.totals[t].rounding.most += wholePages(b.size) - b.size
	case s.kind == Graph:
		if p.graphs == nil {
			p.graphs = make(map[int32]*chunks)
		}
		if p.graphs[s.device] == nil {
			p.graphs[s.device] = &chunks{}
		}
		p.graphs[s.device].add(b.address, b.size)
	case s.kind != Device || s.space != Addresses:
	case b.size > smallMost:
		p.totals[t].rounding.known += int64(wholePages(b.size) - b.size)
	default:
		x, taken := p.pages[b.address/driverPage]
		if !taken {
			if p.pages == nil {
				p.pages = make(map[uint64]page)
			}
			x.total = t
			p.totals[t].rounding.known += driverPage
		}
		x.live++
		p.pages[b.address/driverPage] = x
		p.totals[t].rounding.known -= int64(b.size)
	}
}

// giveRoom undoes takeRoom when the allocation ends.
func (p *heap) giveRoom(b *entry) {
	s := p.sites[b.site]
	if s.space == Objects {
		p.countOfClient(b.address, -1)
		return
	}
	if p.options.unrounded || b.size == 0 || p.purged {
		return
	}
	switch t := s.total; {
	case s.kind == Array:
		p.totals[t].rounding.most -= wholePages(b.size) - b.size
	case s.kind == Graph:
		if x := p.graphs[s.device]; x != nil {
			x.remove(b.address, b.size)
		}
	case s.kind != Device || s.space != Addresses:
	case b.size > smallMost:
		p.totals[t].rounding.known -= int64(wholePages(b.size) - b.size)
	default:
		x := p.pages[b.address/driverPage]
		p.totals[t].rounding.known += int64(b.size)
		if x.live--; x.live == 0 {
			p.totals[x.total].rounding.known -= driverPage
			delete(p.pages, b.address/driverPage)
			return
		}
		p.pages[b.address/driverPage] = x
	}
}

// moveRoom moves an allocation's rounding from one total to another, and returns how much.
func (p *heap) moveRoom(from, to *site, b *entry) (moved int64) {
	if p.options.unrounded || b.size == 0 || from.kind != Device || from.space != Addresses {
		return 0
	}
	moved = int64(wholePages(b.size) - b.size)
	if b.size <= smallMost {
		moved = -int64(b.size)
		if x := p.pages[b.address/driverPage]; x.total == from.total { // all there is on one GPU
			x.total = to.total
			p.pages[b.address/driverPage] = x
			moved += driverPage
		}
	}
	p.totals[from.total].rounding.known -= moved
	p.totals[to.total].rounding.known += moved
	return moved
}

// roundingOf returns what the driver takes for the allocations of a total beyond their bytes. The
// memory of graphs is taken when they are launched, and kept until their pool is trimmed.
func (p *heap) roundingOf(t *runningTotal) rounding {
	x := t.rounding
	if t.Kind == Graph && p.graphs[t.Device] != nil {
		x.most += minus(p.graphs[t.Device].most(), t.LiveBytes)
	}
	return x
}

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
