// SPDX-License-Identifier: Apache-2.0

package allocator

// export makes a snapshot of the walks of all devices, in their order.
func export(walks []*walk, cost Cost) *Snapshot {
	s := &Snapshot{Cost: cost, Devices: make([]Device, 0, len(walks))}
	n := 0
	for i, w := range walks {
		w.device.Index = i
		s.Devices = append(s.Devices, w.device)
		if w.device.Exact || !w.device.Bounded {
			w.exportSegments(s)
		} else {
			w.exportRuns(s)
		}
		n += len(w.blocks)
	}
	s.Blocks = make([]Block, 0, n)
	next := make([]int, len(walks)) // block of each walk
	for len(s.Blocks) < n {
		first := -1
		for i, w := range walks {
			if next[i] < len(w.blocks) && (first < 0 || w.blocks[next[i]].ptr < walks[first].blocks[next[first]].ptr) {
				first = i
			}
		}
		s.Blocks = append(s.Blocks, walks[first].export(next[first]))
		next[first]++
	}
	return s
}

// exportSegments adds the segments of a device: adjacent mapped blocks of a chain.
func (w *walk) exportSegments(s *Snapshot) {
	c := chain{Snapshot: s}
	for i, b := range w.blocks {
		linked := i > 0 && b.prev != 0 && w.blocks[i-1].at == b.prev
		switch {
		case b.prev == 0:
			c.start(b.ptr)
		case !linked: // in a torn walk
			c.start(0)
		}
		switch {
		case b.state == Unmapped:
			c.expandable, c.last = true, -1
		case b.prev == 0 || linked && w.blocks[i-1].state == Unmapped: // nothing mapped is in front
			key := w.pools[b.pool]
			c.last = len(s.Segments)
			s.Segments = append(s.Segments, Segment{Address: b.ptr, Stream: b.stream, Pool: key.id, Small: key.small, Device: w.device.Index})
		}
		w.segment = append(w.segment, int32(c.last))
		if c.last >= 0 {
			s.Segments[c.last].Size += b.size
			s.Segments[c.last].Blocks++
		}
	}
	c.start(0)
}

// chain is one of blocks that follow each other.
type chain struct {
	*Snapshot
	base       uint64 // address of the first; 0: unknown
	first      int    // of its segments
	last       int    // of its segments; -1: none that is known
	expandable bool
}

// start ends a chain and begins another. Only expandable segments have unmapped blocks, and always
// one: they reserve more addresses than the GPU has memory.
func (c *chain) start(base uint64) {
	if c.expandable {
		for i := c.first; i < len(c.Segments); i++ {
			c.Segments[i].Base = c.base
		}
	}
	c.base, c.first, c.last, c.expandable = base, len(c.Segments), -1, false
}

// export returns a block with its segment.
func (w *walk) export(i int) Block {
	b := &w.blocks[i]
	key := w.pools[b.pool]
	return Block{
		Address: b.ptr, Size: b.size, Requested: b.requested, Stream: b.stream, Pool: key.id,
		Device: w.device.Index, State: b.state, Small: key.small, Segment: int(w.segment[i]),
	}
}
