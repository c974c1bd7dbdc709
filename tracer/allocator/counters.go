// SPDX-License-Identifier: Apache-2.0

package allocator

// Sizes of a Stat, four words, and of a StatArray: one of all pools, of the small and of the large
// ones.
const (
	statSize  = 32
	arraySize = 3 * statSize
)

const maxArrays = 9 // since 2.0, with the requested bytes

// arrays returns how many a version has.
func (l *Layout) arrays() int {
	if l.requested < 0 {
		return maxArrays - 1
	}
	return maxArrays
}

// statsSize returns the size of the arrays and the two counts behind them.
func (l *Layout) statsSize() int { return l.arrays()*arraySize + 16 }

// sums are what the blocks of a walk add up to; pending is what was requested of those that wait
// for a stream.
type sums struct{ allocations, actives, allocated, active, reserved, requested, pending uint64 }

func (s *sums) add(b rawBlock) {
	if b.state != Unmapped {
		s.reserved += b.size
	}
	if b.state == Active || b.state == PendingFree {
		s.active += b.size
		s.actives++
	}
	if b.state == PendingFree {
		s.pending += b.requested
	}
	if b.state == Active {
		s.allocated += b.size
		s.requested += b.requested
		s.allocations++
	}
}

// equals reports whether counters are the sums. PyTorch counts what was requested until no stream
// waits for the block.
func (s *sums) equals(c Counters) bool {
	return s.allocations == c.Allocations.Current && s.actives == c.ActiveBlocks.Current && s.allocated == c.Allocated.Current &&
		s.active == c.Active.Current && s.reserved == c.Reserved.Current && (c.Requested == Stat{} || s.requested == c.Requested.Current || s.requested+s.pending == c.Requested.Current)
}

func statAt(b []byte, o int) Stat {
	return Stat{word(b, o), word(b, o+8), word(b, o+16), word(b, o+24)}
}

// countersAt reads the DeviceStats that a layout has found. Their order is the same in all
// versions.
func countersAt(b []byte, l *Layout) (c Counters) {
	if l.stats == 0 {
		return c
	}
	all := [maxArrays]*Stat{&c.Allocations, &c.Segments, &c.ActiveBlocks, &c.InactiveSplits, &c.Allocated, &c.Reserved, &c.Active, &c.InactiveSplit, &c.Requested}
	for i, s := range all[:l.arrays()] {
		*s = statAt(b, l.stats+i*arraySize)
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		for array, s := range [...]*Stat{0: &p.Allocations, 1: &p.Segments, 4: &p.Allocated, 5: &p.Reserved} {
			if s == nil {
				continue
			}
			*s = statAt(b, l.stats+array*arraySize+(1+i)*statSize)
		}
	}
	end := l.stats + l.arrays()*arraySize
	c.Retries, c.OutOfMemory = word(b, end), word(b, end+8)
	return c
}

// findStats finds the one place where the counters equal the sums, and where those of all pools are
// those of the small and of the large: 0 for none, or more than one. Where nothing was freed yet,
// peaks and totals equal the current values, 8 and 16 bytes behind them: the first place is the
// right one. In motion, it takes counters that are near the sums; a walk at rest proves them later.
func findStats(b []byte, s sums, requested, resting bool) (found int) {
	l := &Layout{requested: -1}
	if requested {
		l.requested = 0
	}
	for l.stats = 8; l.stats+l.statsSize() <= len(b); l.stats += 8 {
		c := countersAt(b, l)
		if !s.equals(c) && (resting || !s.near(c)) || !divided(b, l.stats) {
			continue
		}
		switch {
		case found == 0:
			found = l.stats
		case l.stats-found > 16:
			return 0
		}
	}
	return found
}

// steady reports which kinds of pools have the same counters.
func steady(was, is *Counters) (same [2]bool) {
	for i := range same {
		same[i] = was.Pools[i] == is.Pools[i]
	}
	return same
}

// near reports whether counters are off by a quarter at most, and not 0.
func (s *sums) near(c Counters) bool {
	for _, p := range [...][2]uint64{
		{s.allocations, c.Allocations.Current}, {s.actives, c.ActiveBlocks.Current}, {s.allocated, c.Allocated.Current},
		{s.active, c.Active.Current}, {s.reserved, c.Reserved.Current},
	} {
		if p[0] == 0 || p[1] > 1<<60 || apart(p[0], p[1]) > p[0]/4 {
			return false
		}
	}
	return true
}

// divided reports whether the first eight counters of all pools are the sums of their parts.
func divided(b []byte, o int) bool {
	for i := range 8 {
		a := o + i*arraySize
		if word(b, a) != word(b, a+32)+word(b, a+64) {
			return false
		}
	}
	return true
}

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }
