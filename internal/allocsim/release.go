// SPDX-License-Identifier: Apache-2.0

package allocsim

// release returns a whole segment to the driver.
func (h *heap) release(b int32) {
	h.take(b)
	h.reserved -= h.nodes[b].size
	h.lists[h.nodes[b].list].segments--
	h.unused = append(h.unused, b)
}

// emptyCache waits for all streams, and returns what is free to the driver: PyTorch's
// release_cached_blocks().
func (h *heap) emptyCache() {
	for len(h.waiting) > 0 {
		h.complete(h.waiting[len(h.waiting)-1])
	}
	h.spend(len(h.lists))
	for _, l := range h.lists {
		if l.pool.number != 0 && !l.pool.released {
			continue
		}
		for n := len(l.releasable); n > 0; n = len(l.releasable) {
			b := l.releasable[n-1]
			if h.segments[h.nodes[b].segment].granule == 0 {
				h.release(b)
			} else {
				h.unmapPiece(b)
			}
		}
	}
}

// releaseOversize returns as many oversize segments to the driver as a block of size needs:
// PyTorch's release_available_cached_blocks(). It reports whether they suffice.
func (a *allocator) releaseOversize(at int32, size uint64) bool {
	if a.settings.MaxSplit == 0 {
		return false
	}
	l := a.lists[at]
	size = max(size, a.settings.MaxSplit)
	p := l.free.lower(entry{size: size})
	if l.free.valid(p) && a.whole(l.free.at(p).node) {
		a.tie(l, p)
		a.release(l.free.at(p).node)
		return true
	}
	sum := uint64(0)
	for sum < size && a.spend(1) {
		p = l.free.before(p)
		if !l.free.valid(p) || l.free.at(p).size < a.settings.MaxSplit {
			break
		}
		e := l.free.at(p)
		if a.whole(e.node) {
			a.orderMatters = a.orderMatters || a.collects()
			sum += e.size
			a.release(e.node)
			p = l.free.lower(e)
		}
	}
	return sum >= size
}

// collect returns segments to the driver that were free for long: PyTorch's
// garbage_collect_cached_blocks().
func (a *allocator) collect() {
	threshold := uint64(a.settings.GC * float64(a.allowed))
	if a.reserved <= threshold {
		return
	}
	var old []int32
	age := int64(0)
	a.spend(len(a.lists))
	for _, l := range a.lists {
		if l.pool.number != 0 || l.pool.small {
			continue
		}
		a.spend(len(l.releasable))
		for _, b := range l.releasable {
			if a.whole(b) {
				old = append(old, b)
				age += l.pool.calls - a.nodes[b].born
			}
		}
	}
	target, got := a.reserved-threshold, uint64(0)
	for freed := true; got < target && freed && len(old) > 0; {
		limit := float64(age) / float64(len(old))
		freed = false
		a.spend(len(old))
		rest := old[:0]
		for _, b := range old {
			of := a.lists[a.nodes[b].list].pool.calls - a.nodes[b].born
			if float64(of) < limit {
				rest = append(rest, b)
				continue
			}
			freed = true
			got += a.nodes[b].size
			age -= of
			a.release(b)
		}
		old = rest
	}
}
