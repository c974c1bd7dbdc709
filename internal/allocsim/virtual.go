// SPDX-License-Identifier: Apache-2.0

package allocsim

// usable reports whether a piece is free memory or address space.
func (h *heap) usable(b int32) bool {
	return b != none && (h.nodes[b].state == free || h.nodes[b].state == unmapped)
}

// room reports whether a block of size fits in the usable pieces from c on.
func (h *heap) room(c int32, size uint64) bool {
	sum := uint64(0)
	for ; sum < size && h.usable(c) && h.spend(1); c = h.nodes[c].next {
		sum += h.nodes[c].size
	}
	return sum >= size
}

// growVirtual maps memory for a block at the lowest address at which it finds address space. It
// returns a free piece that is in no set, or none if the driver has no memory.
func (a *allocator) growVirtual(at int32, size uint64) int32 {
	l, c := a.lists[at], none
	if n := len(l.unmapped); n > 1 && a.nodes[l.unmapped[0]].segment != a.nodes[l.unmapped[n-1]].segment {
		a.orderMatters = true
	}
	for _, u := range l.unmapped {
		if !a.spend(1) {
			return none
		}
		if prev := a.nodes[u].prev; a.usable(prev) {
			u = prev
		}
		if a.room(u, size) {
			c = u
			break
		}
	}
	if c == none {
		granule := uint64(largeBuffer)
		if l.pool.small {
			granule = smallBuffer
		}
		length := max((a.total+a.total/8+granule-1)/granule*granule, (size+granule-1)/granule*granule)
		c = a.addSegment(a.address(length), length, granule, at)
		a.putUnmapped(c)
	}
	if a.nodes[c].state == unmapped && !a.mapPiece(c, min(a.nodes[c].size, size)) {
		return none
	}
	for a.nodes[c].size < size {
		next := a.nodes[c].next
		if !a.mapPiece(next, min(size-a.nodes[c].size, a.nodes[next].size)) {
			return none
		}
		c = next
	}
	a.take(c)
	return c
}

// mapPiece maps the granules of an unmapped piece that size covers.
func (a *allocator) mapPiece(b int32, size uint64) bool {
	s := &a.segments[a.nodes[b].segment]
	end := (a.nodes[b].at - s.base + size + s.granule - 1) / s.granule * s.granule
	size = end - (a.nodes[b].at - s.base)
	if size > a.capacity-min(a.reserved, a.capacity) {
		return false
	}
	a.takeUnmapped(b)
	a.rebase(b)
	if size < a.nodes[b].size {
		a.putUnmapped(a.splitRight(b, size))
	}
	a.nodes[b].state = free
	a.merge(b, a.nodes[b].prev)
	a.merge(b, a.nodes[b].next)
	a.put(b)
	a.reserve(size)
	return true
}

// unmapPiece returns the whole granules of a free piece to the driver.
func (h *heap) unmapPiece(b int32) {
	first, size := h.returnable(b)
	if size == 0 {
		return
	}
	h.take(b)
	if before := first - h.nodes[b].at; before > 0 {
		h.put(h.splitLeft(b, before))
	}
	if h.nodes[b].size > size {
		h.put(h.splitRight(b, size))
	}
	h.nodes[b].state = unmapped
	h.merge(b, h.nodes[b].prev)
	h.merge(b, h.nodes[b].next)
	h.reserved -= size
	if h.nodes[b].prev == none && h.nodes[b].next == none { // the whole range: its addresses go back
		h.lists[h.nodes[b].list].segments--
		h.unused = append(h.unused, b)
		return
	}
	h.putUnmapped(b)
}
