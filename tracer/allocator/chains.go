// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"
)

const (
	maxLinked      = 4096 // blocks that one walk takes from their neighbors
	maxLinkRounds  = 16   // of following them: as many neighbors in a row
	linkedNotFound = ^uint64(0)
)

// addLinked adds the live blocks that no container showed but a neighbor leads to: the table of
// active blocks moves an entry while it is read, when another one comes or goes. A block belongs
// there if it and its neighbor lead to each other and their memory is adjacent. One that is all of
// a segment has no neighbor.
func (w *walk) addLinked(r *reader, l *Layout) {
	asked := map[uint64]bool{}
	for range maxLinkRounds {
		var missing []uint64
		for i := range w.blocks {
			for _, at := range w.unlinked(i) {
				if at != linkedNotFound && !asked[at] && len(asked) < maxLinked {
					asked[at] = true
					missing = append(missing, at)
				}
			}
		}
		before := len(w.blocks)
		w.readLinked(r, l, missing)
		if len(w.blocks) == before {
			return
		}
		w.sortBlocks()
	}
}

// unlinked returns the neighbors that the ith block leads to and that are not next to it:
// linkedNotFound for none.
func (w *walk) unlinked(i int) (missing [2]uint64) {
	b := &w.blocks[i]
	missing = [2]uint64{linkedNotFound, linkedNotFound}
	if b.next != 0 && (i+1 == len(w.blocks) || w.blocks[i+1].at != b.next) && w.isNew(b.next) {
		missing[0] = b.next
	}
	if b.prev != 0 && (i == 0 || w.blocks[i-1].at != b.prev) && w.isNew(b.prev) {
		missing[1] = b.prev
	}
	return missing
}

// isNew reports whether an address can be that of a block which no container showed.
func (w *walk) isNew(at uint64) bool {
	if at&7 != 0 {
		return false
	}
	_, known := slices.BinarySearchFunc(w.keys, at, func(key, at uint64) int { return cmp.Compare(key&^7, at) })
	return !known
}

// readLinked reads blocks, and adds those that are live and fit a neighbor, in two reads: what is
// written meanwhile may be a mixture of two blocks. Free ones may be gone, but show where memory is
// mapped.
func (w *walk) readLinked(r *reader, l *Layout, at []uint64) {
	slices.Sort(at)
	at = slices.DeleteFunc(at, func(a uint64) bool { return !r.pointer(a) })
	found := w.spare[:0]
	r.each(l.blockEnd(), at, func(i int, x []byte) { found = append(found, l.block(x, at[i], Active)) })
	k := 0
	r.each(l.blockEnd(), at[:len(found)], func(i int, x []byte) {
		b := l.block(x, at[i], Active)
		switch live := b.state == Active || b.state == PendingFree && !b.freed; {
		case b != found[i] || !b.sized() || !w.hasNeighbor(&b):
		case live:
			found[k] = b
			k++
		default:
			w.free = append(w.free, b)
		}
	})
	w.blocks = append(w.blocks, found[:k]...)
	w.device.Linked += k
	w.spare = found[:0]
}

// hasNeighbor reports whether a block and one of the walk lead to each other.
func (w *walk) hasNeighbor(b *rawBlock) bool {
	i, _ := slices.BinarySearchFunc(w.blocks, b.ptr, func(a rawBlock, ptr uint64) int { return cmp.Compare(a.ptr, ptr) })
	return i < len(w.blocks) && b.next != 0 && follows(*b, w.blocks[i]) ||
		i > 0 && b.prev != 0 && follows(w.blocks[i-1], *b)
}

// run is memory of a segment, without a hole: an expandable segment may have several.
type run struct {
	start, end uint64
	base       uint64 // of an expandable segment: the address of its first page; 0 for others
	stream     uint64
	pool       uint64 // its address
}

// bounds are the runs of a device that were proven, as long as nothing is reserved or given back.
type bounds struct {
	reserved Stat
	runs     []run
}

// are reports whether the bounds are those of a device with such a counter.
func (k *bounds) are(reserved Stat) bool {
	return k.runs != nil && k.reserved.Allocated == reserved.Allocated && k.reserved.Freed == reserved.Freed
}

// bound finds the runs of a walk, or takes the bounds that an earlier one proved; was and is are
// the counters before and after it. The counter of segments counts the pages of expandable ones.
func (w *walk) bound(known *bounds, was, is *Counters) {
	if w.device.Bounded = w.device.Exact; moved(was.Reserved, is.Reserved) != 0 {
		return
	}
	runs, expandable := runsOf(w.mapped())
	switch {
	case total(runs) == is.Reserved.Current && (expandable || uint64(len(runs)) == is.Segments.Current):
		w.runs, w.device.Bounded = runs, true
		*known = bounds{is.Reserved, runs}
	case known.are(is.Reserved):
		w.runs, w.device.Bounded = known.runs, true
	}
}

// mapped returns the blocks and the free ones that only neighbors showed, by address.
func (w *walk) mapped() []rawBlock {
	if len(w.free) == 0 {
		return w.blocks
	}
	list := slices.Concat(w.blocks, w.free)
	slices.SortStableFunc(list, func(a, b rawBlock) int { return cmp.Compare(a.ptr, b.ptr) })
	return list
}

// runsOf returns the memory that blocks have, one run for each segment. A block lies in its segment
// whether it was read before or after it was divided or joined, and the first and the last one of a
// chain are at the ends of the segment. expandable reports whether there are blocks without memory:
// these divide a segment into several runs.
func runsOf(blocks []rawBlock) (runs []run, expandable bool) {
	var now run
	first, base, last := 0, uint64(0), uint64(0) // run of the chain; where the chain begins; the end of a segment
	holed := false                               // the chain has unmapped blocks
	end := func() {
		if now.end > now.start {
			runs = append(runs, now)
		}
		now = run{}
	}
	endChain := func() {
		end()
		for k := first; k < len(runs) && holed; k++ {
			runs[k].base = base
		}
		expandable = expandable || holed
		first, holed = len(runs), false
	}
	for i := range blocks {
		b := &blocks[i]
		if b.prev == 0 && b.ptr != base {
			endChain()
			base = b.ptr
		}
		if b.state == Unmapped {
			end()
			holed = true
			continue
		}
		if now.end == 0 || b.ptr > now.end || b.ptr == now.end && b.ptr == last {
			end()
			now = run{start: b.ptr, stream: b.stream, pool: b.pool}
		}
		now.end = max(now.end, b.ptr+b.size)
		if b.next == 0 {
			last = b.ptr + b.size
		}
	}
	endChain()
	return runs, expandable
}

// total returns the bytes of runs.
func total(runs []run) (sum uint64) {
	for i := range runs {
		sum += runs[i].end - runs[i].start
	}
	return sum
}

// exportRuns adds the segments of a device, and notes which block is in which.
func (w *walk) exportRuns(s *Snapshot) {
	first := len(s.Segments)
	for _, x := range w.runs {
		key := w.pools[x.pool]
		s.Segments = append(s.Segments, Segment{Address: x.start, Size: x.end - x.start, Base: x.base, Stream: x.stream, Pool: key.id, Small: key.small, Device: w.device.Index})
	}
	at := first
	for i := range w.blocks {
		b := &w.blocks[i]
		for at < len(s.Segments) && s.Segments[at].Address+s.Segments[at].Size <= b.ptr {
			at++
		}
		if at == len(s.Segments) || b.state == Unmapped || b.ptr < s.Segments[at].Address {
			w.segment = append(w.segment, -1)
			continue
		}
		s.Segments[at].Blocks++
		w.segment = append(w.segment, int32(at))
	}
}
