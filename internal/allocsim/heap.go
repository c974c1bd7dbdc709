// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"slices"
	"sort"
)

type state uint8

const (
	free state = iota
	live
	waiting
	unmapped
)

const none = int32(-1)

// node is a piece of a segment: a block, or free memory between blocks, or address space.
type node struct {
	at, size   uint64
	born       int64 // the pool's calls when it became free
	prev, next int32 // its neighbors in the segment
	list       int32
	segment    int32
	place      int32  // in list.releasable or heap.waiting; none
	owner      uint32 // 1 + the block of the trace, of a live or waiting piece; 0
	state      state
}

// segment is a cudaMalloc, or a virtual range.
type segment struct {
	base    uint64
	granule uint64 // of a virtual range; 0: a cudaMalloc
}

// pool is one pool's small or large half: PyTorch's BlockPool.
type pool struct {
	number   uint32
	small    bool
	released bool // a private pool that no graph uses
	calls    int64
}

// list is the free memory of one pool that one stream can use.
type list struct {
	pool       *pool
	stream     uint32
	free       sizeSet
	unmapped   []int32 // by address
	releasable []int32 // free nodes of which empty_cache returns something, in no order
	segments   int
}

type listKey struct {
	pool, stream uint32
	small        bool
}

// heap is segments and their pieces. Pieces are numbers of nodes; those that merge are used again.
type heap struct {
	nodes    []node
	unused   []int32
	segments []segment
	lists    []*list
	pools    []*pool
	byKey    map[listKey]int32
	lastKey  [2]listKey // by small: most calls ask for the list of the one before
	last     [2]int32
	waiting  []int32

	reserved, peak       uint64
	allocated            uint64
	freeBytes, wholeFree uint64 // free, and of it what empty_cache would return

	work int64 // that is left: see spend
}

func (h *heap) init() {
	h.byKey = map[listKey]int32{}
	h.last = [2]int32{none, none}
}

func (h *heap) list(pool, stream uint32, small bool) int32 {
	k, which := listKey{pool, stream, small}, 0
	if small {
		which = 1
	}
	if h.last[which] != none && h.lastKey[which] == k {
		return h.last[which]
	}
	n, ok := h.byKey[k]
	if !ok {
		n = int32(len(h.lists))
		h.lists = append(h.lists, &list{pool: h.pool(pool, small), stream: stream})
		h.byKey[k] = n
	}
	h.lastKey[which], h.last[which] = k, n
	return n
}

// pool returns half of a pool. It is only called for a new list.
func (h *heap) pool(number uint32, small bool) *pool {
	h.spend(2 * len(h.lists))
	for _, l := range h.lists {
		if l.pool.number == number && l.pool.small == small {
			return l.pool
		}
	}
	p := &pool{number: number, small: small}
	for _, l := range h.lists {
		if l.pool.number == number {
			p.released = l.pool.released
		}
	}
	h.pools = append(h.pools, p)
	return p
}

func (h *heap) add(n node) int32 {
	n.prev, n.next, n.place, n.owner = none, none, none, 0
	if len(h.unused) > 0 {
		i := h.unused[len(h.unused)-1]
		h.unused = h.unused[:len(h.unused)-1]
		h.nodes[i] = n
		return i
	}
	h.nodes = append(h.nodes, n)
	return int32(len(h.nodes) - 1)
}

// addSegment adds a segment that is one free piece, which is in no set yet.
func (h *heap) addSegment(base, size, granule uint64, list int32) int32 {
	h.segments = append(h.segments, segment{base: base, granule: granule})
	h.lists[list].segments++
	return h.add(node{at: base, size: size, list: list, segment: int32(len(h.segments) - 1)})
}

// link puts b between two neighbors, each of which may be none.
func (h *heap) link(prev, b, next int32) {
	h.nodes[b].prev, h.nodes[b].next = prev, next
	if prev != none {
		h.nodes[prev].next = b
	}
	if next != none {
		h.nodes[next].prev = b
	}
}

// splitLeft cuts a piece off the beginning of b, with b's state, and returns it.
func (h *heap) splitLeft(b int32, size uint64) int32 {
	n := h.nodes[b]
	n.size = size
	left := h.add(n)
	h.link(h.nodes[b].prev, left, b)
	h.nodes[b].at += size
	h.nodes[b].size -= size
	return left
}

// splitRight cuts b after size, and returns the rest, with b's state.
func (h *heap) splitRight(b int32, size uint64) int32 {
	n := h.nodes[b]
	n.at += size
	n.size -= size
	right := h.add(n)
	h.link(b, right, h.nodes[b].next)
	h.nodes[b].size = size
	return right
}

// returnable is how much of a free piece empty_cache gives back to the driver: a whole segment, or
// whole granules of a virtual range, which begin at first.
func (h *heap) returnable(b int32) (first, size uint64) {
	n := &h.nodes[b]
	s := &h.segments[n.segment]
	if s.granule == 0 {
		if n.prev == none && n.next == none {
			return n.at, n.size
		}
		return 0, 0
	}
	begin := (n.at - s.base + s.granule - 1) / s.granule * s.granule
	end := (n.at + n.size - s.base) / s.granule * s.granule
	if begin >= end {
		return 0, 0
	}
	return s.base + begin, end - begin
}

// put makes a piece free.
func (h *heap) put(b int32) {
	n := &h.nodes[b]
	l := h.lists[n.list]
	n.state, n.born = free, l.pool.calls
	l.free.insert(entry{n.size, n.at, b})
	h.freeBytes += n.size
	if _, size := h.returnable(b); size > 0 {
		h.wholeFree += size
		n.place = int32(len(l.releasable))
		l.releasable = append(l.releasable, b)
	}
}

// take takes a free piece out of its sets. Its size and neighbors are as they were when it was
// put.
func (h *heap) take(b int32) {
	n := &h.nodes[b]
	l := h.lists[n.list]
	l.free.remove(entry{n.size, n.at, b})
	h.freeBytes -= n.size
	if n.place != none {
		_, size := h.returnable(b)
		h.wholeFree -= size
		l.releasable = h.unplace(l.releasable, n.place)
		n.place = none
	}
}

// unplace removes an element of a list without order whose nodes know their places.
func (h *heap) unplace(list []int32, place int32) []int32 {
	last := list[len(list)-1]
	list[place] = last
	h.nodes[last].place = place
	return list[:len(list)-1]
}

// moved is how many elements of a list are moved in the time in which one is looked at.
const moved = 16

func (h *heap) putUnmapped(b int32) {
	h.nodes[b].state = unmapped
	l := h.lists[h.nodes[b].list]
	i := h.unmappedAt(l, b)
	h.spend((len(l.unmapped) - i) / moved)
	l.unmapped = slices.Insert(l.unmapped, i, b)
}

func (h *heap) takeUnmapped(b int32) {
	l := h.lists[h.nodes[b].list]
	i := h.unmappedAt(l, b)
	h.spend((len(l.unmapped) - i) / moved)
	l.unmapped = slices.Delete(l.unmapped, i, i+1)
}

func (h *heap) unmappedAt(l *list, b int32) int {
	at := h.nodes[b].at
	return sort.Search(len(l.unmapped), func(i int) bool {
		o := l.unmapped[i]
		return h.nodes[o].at > at || h.nodes[o].at == at && o >= b
	})
}

// merge joins a neighbor that is in the same state into b, which is in no set.
func (h *heap) merge(b, other int32) {
	if other == none || h.nodes[other].state != h.nodes[b].state {
		return
	}
	if h.nodes[other].state == unmapped {
		h.takeUnmapped(other)
	} else {
		h.take(other)
	}
	if h.nodes[b].prev == other {
		h.nodes[b].at = h.nodes[other].at
		h.link(h.nodes[other].prev, b, h.nodes[b].next)
	} else {
		h.link(h.nodes[b].prev, b, h.nodes[other].next)
	}
	h.nodes[b].size += h.nodes[other].size
	h.unused = append(h.unused, other)
}

// settle merges a piece that is no longer used with its free neighbors, and makes it free.
func (h *heap) settle(b int32) {
	h.nodes[b].state, h.nodes[b].owner = free, 0
	h.merge(b, h.nodes[b].prev)
	h.merge(b, h.nodes[b].next)
	h.put(b)
}

func (h *heap) reserve(size uint64) {
	h.reserved += size
	h.peak = max(h.peak, h.reserved)
}

func (h *heap) wait(b int32) {
	h.nodes[b].state, h.nodes[b].place = waiting, int32(len(h.waiting))
	h.waiting = append(h.waiting, b)
}

// complete ends the wait of a piece.
func (h *heap) complete(b int32) {
	h.waiting = h.unplace(h.waiting, h.nodes[b].place)
	h.nodes[b].place = none
	h.settle(b)
}
