// SPDX-License-Identifier: Apache-2.0

package allocsim

// find takes a free block of at least a size out of its sets, or returns none.
func (a *allocator) find(at int32, size uint64) int32 {
	l := a.lists[at]
	if a.collects() {
		l.pool.calls++
	}
	p := l.free.lower(entry{size: size})
	if !l.free.valid(p) {
		return none
	}
	if a.virtual(l.free.at(p).node) {
		if p = a.findVirtual(l, p); !l.free.valid(p) {
			return none
		}
	} else {
		a.tie(l, p)
	}
	e := l.free.at(p)
	split := a.settings.MaxSplit
	if split > 0 && (size < split && e.size >= split || size >= split && e.size >= size+largeBuffer) {
		return none
	}
	a.take(e.node)
	return e.node
}

// findVirtual prefers pieces of which less can become: a piece at the end of what is mapped counts
// with the address space behind it. Without expandable_segments, virtual pieces are passed over.
func (a *allocator) findVirtual(l *list, p position) position {
	if !a.settings.Expandable {
		for l.free.valid(p) && a.virtual(l.free.at(p).node) && a.spend(1) {
			p = l.free.next(p)
		}
		return p
	}
	if l.segments > 1 {
		a.orderMatters = true
	}
	grown := func(b int32) uint64 {
		n := &a.nodes[b]
		if n.next != none && a.nodes[n.next].state == unmapped {
			return n.size + a.nodes[n.next].size
		}
		return n.size
	}
	for a.spend(1) {
		q := l.free.next(p)
		if !a.virtual(l.free.at(p).node) || !l.free.valid(q) || grown(l.free.at(q).node) >= grown(l.free.at(p).node) {
			return p
		}
		p = q
	}
	return p
}

// grow gets memory from the driver for a block, as a free piece that is in no set.
func (a *allocator) grow(at int32, size uint64) int32 {
	want := segmentSize(size)
	if a.allowed > 0 && a.reserved+want > a.allowed {
		return none
	}
	if a.settings.Expandable {
		return a.growVirtual(at, size)
	}
	if want > a.capacity-min(a.reserved, a.capacity) {
		return none
	}
	a.reserve(want)
	return a.addSegment(a.address(want), want, 0, at)
}

// malloc allocates a block, or returns none: out of memory.
func (a *allocator) malloc(block Block) int32 {
	if block.Requested > maxSize {
		return none
	}
	size := a.settings.round(block.Requested)
	at := a.list(block.Pool, block.Stream, size <= smallSize)
	a.hint = block.Address
	b := a.find(at, size)
	if b == none {
		if b = a.findMore(at, size, block.Pool != 0); b == none {
			return none
		}
	}
	l := a.lists[at]
	rest := a.nodes[b].size - size
	split := rest >= minBlock
	if !l.pool.small && !a.settings.Expandable {
		split = rest > smallSize && (a.settings.MaxSplit == 0 || size < a.settings.MaxSplit)
	}
	if split {
		left := a.splitLeft(b, size)
		a.put(b)
		b = left
	}
	a.nodes[b].state = live
	a.allocated += a.nodes[b].size
	return b
}

// findMore gets memory from the driver, and gives back cached memory where it has none.
func (a *allocator) findMore(at int32, size uint64, capturing bool) int32 {
	if a.collects() {
		a.collect()
	}
	b := a.grow(at, size)
	if b == none && a.releaseOversize(at, size) {
		b = a.grow(at, size)
	}
	// While a graph is captured, PyTorch cannot wait for streams, so it does not give back its
	// cache.
	if b == none && !capturing {
		a.retries++
		a.emptyCache()
		b = a.grow(at, size)
	}
	return b
}

// free frees a block at once, or, where other streams use it, when complete is called.
func (a *allocator) free(b int32, later bool) {
	a.allocated -= a.nodes[b].size
	if later {
		a.wait(b)
	} else {
		a.settle(b)
	}
}
