// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/vramprof/vramprof/tracer/ledger/chunks"

// How the driver takes memory of a GPU for allocations, as drivers 535 and 550 do: see
// docs/planes.md. Physical memory of cuMemCreate has whole pages.
const (
	// driverPage is the granularity in which the driver takes memory of a GPU.
	driverPage = 2 << 20

	// smallMost is the largest allocation that shares a page with others. A larger one has pages of
	// its own.
	smallMost = 1 << 20
)

// rounding is what the driver takes for allocations in addition to their bytes.
type rounding struct {
	known int64  // certainly; negative while a total pays for pages that another one has
	most  uint64 // perhaps, in addition
}

func (x *rounding) add(y rounding) { x.known, x.most = x.known+y.known, x.most+y.most }

// page is a page of allocations of at most smallMost.
type page struct{ live, total uint32 } // how many live there, and which of heap.totals pays for it

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
			p.graphs = make(map[int32]*chunks.Set)
		}
		if p.graphs[s.device] == nil {
			p.graphs[s.device] = &chunks.Set{}
		}
		p.graphs[s.device].Add(b.address, b.size)
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
			x.Remove(b.address, b.size)
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
		x.most += minus(p.graphs[t.Device].Most(), t.LiveBytes)
	}
	return x
}

func wholePages(size uint64) uint64 { return (size + driverPage - 1) &^ (driverPage - 1) }

// deviceLive is a part of the books of one device.
type deviceLive struct {
	device int32
	kind   Kind // of the allocations
	bytes  uint64
	rounding
}
