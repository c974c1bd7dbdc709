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

// tie notes whether the free block at p is chosen by its address: whether another one of its size
// is in another segment. Two whole segments of equal size are the same for all that follows.
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

// whole reports whether a free piece is a segment of cudaMalloc.
func (h *heap) whole(b int32) bool {
	n := &h.nodes[b]
	return h.segments[n.segment].granule == 0 && n.prev == none && n.next == none
}

// collects reports whether garbage_collection_threshold is in force: PyTorch ignores it without a
// memory fraction.
func (a *allocator) collects() bool { return a.allowed > 0 && a.settings.GC > 0 }

func (h *heap) virtual(b int32) bool { return h.segments[h.nodes[b].segment].granule > 0 }

// rebase moves an empty virtual range to where the recorded run had it.
func (a *allocator) rebase(b int32) {
	n := &a.nodes[b]
	if a.order == Recorded && a.hint != 0 && n.prev == none && n.next == none {
		a.segments[n.segment].base, n.at = a.hint, a.hint
	}
}

// unlimited is the total of a GPU whose memory is not limited.
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
