// SPDX-License-Identifier: Apache-2.0

package allocsim

// allocator is PyTorch's DeviceCachingAllocator.
type allocator struct {
	heap
	settings Settings
	capacity uint64 // what the driver has
	allowed  uint64 // by a memory fraction; 0: not set
	total    uint64 // of the GPU, for virtual ranges
	order    Order
	next     uint64 // address, of Rising and Falling
	hint     uint64 // where the recorded run had the block that is being allocated

	retries      int
	orderMatters bool
}

// address returns where the driver puts a segment.
func (a *allocator) address(size uint64) uint64 {
	switch {
	case a.order == Recorded && a.hint != 0:
		return a.hint
	case a.order == Recorded, a.order == Rising:
		a.next += size
		return a.next - size
	case a.order == Falling:
		a.next -= size
		return a.next
	}
	return permute(uint32(len(a.segments)), uint32(a.order)) << 40
}

// permute maps the numbers below 2^23 to each other, by a Feistel network of 12 and 11 bits.
func permute(n, seed uint32) uint64 {
	l, r := n>>11&(1<<12-1), n&(1<<11-1)
	mix := func(x, round uint32) uint32 {
		x = (x+1)*0x9e3779b1 ^ (seed*4+round)*0x85ebca6b
		x ^= x >> 15
		x *= 0x2c1b3c6d
		return x ^ x>>13
	}
	for round := uint32(0); round < 4; round += 2 {
		r ^= mix(l, round) & (1<<11 - 1)
		l ^= mix(r, round+1) & (1<<12 - 1)
	}
	return uint64(l<<11 | r)
}

// tie notes whether the free block at p is chosen by its address: whether another one of its size is
// in another segment. Two whole segments of equal size are the same for all that follows.
func (a *allocator) tie(l *list, p position) {
	if a.orderMatters {
		return
	}
	first := l.free.at(p)
	q := l.free.next(p)
	if !l.free.valid(q) || l.free.at(q).size != first.size {
		return
	}
	last := l.free.before(l.free.lower(entry{size: first.size + 1}))
	if a.nodes[l.free.at(last).node].segment == a.nodes[first.node].segment {
		return
	}
	const atMost = 16 // more are not looked at
	for n := 0; l.free.valid(q) && l.free.at(q).size == first.size; n++ {
		if n == atMost || a.collects() || !a.whole(l.free.at(q).node) {
			a.orderMatters = true
			return
		}
		q = l.free.next(q)
	}
	a.orderMatters = !a.whole(first.node)
}

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

func (h *heap) virtual(b int32) bool { return h.segments[h.nodes[b].segment].granule > 0 }

// findVirtual prefers pieces of which less can become: a piece at the end of what is mapped counts
// with the address space behind it. Without expandable_segments, virtual pieces are passed over.
func (a *allocator) findVirtual(l *list, p position) position {
	if !a.settings.Expandable {
		for l.free.valid(p) && a.virtual(l.free.at(p).node) {
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
	for {
		q := l.free.next(p)
		if !a.virtual(l.free.at(p).node) || !l.free.valid(q) || grown(l.free.at(q).node) >= grown(l.free.at(p).node) {
			return p
		}
		p = q
	}
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
	// While a graph is captured, PyTorch cannot wait for streams, so it does not give back its cache.
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

// rebase moves an empty virtual range to where the recorded run had it.
func (a *allocator) rebase(b int32) {
	n := &a.nodes[b]
	if a.order == Recorded && a.hint != 0 && n.prev == none && n.next == none {
		a.segments[n.segment].base, n.at = a.hint, a.hint
	}
}

// total of a GPU whose memory is not limited.
const unlimited = maxSize

func newAllocator(s Settings, o Options, total uint64) *allocator {
	a := &allocator{settings: s, capacity: maxReserved, total: unlimited, order: o.Order, next: 1 << 44}
	if o.Capacity > 0 {
		a.capacity = min(o.Capacity, maxReserved)
	}
	if o.Order == Falling {
		a.next = 1 << 62
	}
	if total > 0 {
		a.total = min(total, unlimited)
	}
	if s.Fraction > 0 {
		a.allowed = max(uint64(min(s.Fraction, 1)*float64(a.total)), 1)
	}
	a.init()
	return a
}
