// SPDX-License-Identifier: Apache-2.0

package allocator

import "slices"

const (
	maxLinked      = 4096 // blocks that one walk takes from their neighbors
	maxLinkRounds  = 16   // of following them: as many neighbors in a row
	linkedNotFound = ^uint64(0)
)

// addLinked adds the live blocks that no container showed but a neighbor leads to: the table of active blocks moves
// an entry while it is read, when another one comes or goes. A block belongs there if it and its neighbor lead to
// each other and their memory is adjacent. One that is all of a segment has no neighbor.
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

// unlinked returns the neighbors that the ith block leads to and that are not next to it: linkedNotFound for none.
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
	_, known := slices.BinarySearchFunc(w.keys, at, func(key, at uint64) int { return compare(key&^7, at) })
	return !known
}

// readLinked reads blocks, and adds those that are live and fit a neighbor.
func (w *walk) readLinked(r *reader, l *Layout, at []uint64) {
	slices.Sort(at)
	at = slices.DeleteFunc(at, func(a uint64) bool { return !r.pointer(a) })
	found := w.spare[:0]
	r.each(l.blockEnd(), at, func(i int, x []byte) {
		b := l.block(x, at[i], Active)
		if live := b.state == Active || b.state == PendingFree && !b.freed; live && b.sized() && w.hasNeighbor(&b) {
			found = append(found, b)
		}
	})
	w.blocks = append(w.blocks, found...)
	w.device.Linked += len(found)
	w.spare = found[:0]
}

// hasNeighbor reports whether a block and one of the walk lead to each other.
func (w *walk) hasNeighbor(b *rawBlock) bool {
	i, _ := slices.BinarySearchFunc(w.blocks, b.ptr, func(a rawBlock, ptr uint64) int { return compare(a.ptr, ptr) })
	return i < len(w.blocks) && b.next != 0 && follows(*b, w.blocks[i]) ||
		i > 0 && b.prev != 0 && follows(w.blocks[i-1], *b)
}

// run is memory of a segment, without a hole: of an expandable segment, there may be several.
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

// bound finds the runs of a walk, or takes the bounds that an earlier one proved; was and is are the reserved bytes
// before and after it.
func (w *walk) bound(known *bounds, was, is Stat) {
	if moved(was, is) != 0 {
		return
	}
	if w.runs = runsOf(w.blocks); total(w.runs) == is.Current {
		w.device.Bounded = true
		*known = bounds{is, w.runs}
		return
	}
	if w.device.Bounded = w.device.Exact; known.are(is) {
		w.runs, w.device.Bounded = known.runs, true
	}
}

// runsOf returns the memory between the first and the last block of each chain, which stay where they are while blocks
// in between are divided and joined, except for what is not mapped. A chain without an end has none.
func runsOf(blocks []rawBlock) (runs []run) {
	var now run
	found := false // a block of the run
	var base uint64
	var inside, expandable bool
	first := 0 // run of the chain
	end := func(at uint64) {
		if now.end = at; now.end > now.start && found {
			runs = append(runs, now)
		}
	}
	for i := range blocks {
		b := &blocks[i]
		if b.prev == 0 && (!inside || b.ptr != base) {
			inside, expandable, base, first = true, false, b.ptr, len(runs)
			now, found = run{start: b.ptr}, false
		}
		switch {
		case !inside:
			continue
		case b.state == Unmapped:
			end(b.ptr)
			expandable, found, now = true, false, run{start: b.ptr + b.size}
		case !found:
			found, now.stream, now.pool = true, b.stream, b.pool
		}
		if b.next != 0 {
			continue
		}
		end(b.ptr + b.size)
		for k := first; k < len(runs) && expandable; k++ {
			runs[k].base = base
		}
		inside = false
	}
	return runs
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
