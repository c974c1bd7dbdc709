// SPDX-License-Identifier: Apache-2.0

package ledger

// merge adds the live bytes of other cohorts, which must not be used afterwards. The windows of both
// begin at the same time then, and are equally long; the counts in them stay apart.
func (c *cohorts) merge(o *cohorts, begin uint64) {
	switch {
	case o.base == noBase:
		return
	case c.base == noBase:
		parts, levels := c.parts, c.levels
		*levels = *o.levels
		*c = *o
		c.parts, c.levels = parts, levels
		for p := c.parts; p != nil; p = p.next {
			c.adopt(p)
		}
		return
	}
	for c.shift < o.shift {
		c.coarsen()
	}
	for o.shift < c.shift {
		o.coarsen()
	}
	for max(c.newest(), o.newest())-min(c.base, o.base) >= CohortLen {
		c.coarsen()
		o.coarsen()
	}
	until, newest, first := max(c.levels.until, o.levels.until), max(c.newest(), o.newest()), min(c.base, o.base)
	for _, x := range [...]*cohorts{c, o} {
		x.reach(begin, begin+newest<<x.shift)
		x.pass(until)
		x.beginAt(first)
	}
	for i := range int(c.last) {
		x, y := c.levels.at(i), o.levels.at(i)
		c.levels.set(i, level{x.floor + y.floor, x.area + y.area})
	}
	if c.shift > recentShift {
		c.mergeRecents(o, begin, until)
	}
	c.levels.now += o.levels.now
	c.floor += o.floor
	c.live += o.live
	c.peak += o.peak
	c.highs |= o.highs
}

// newest returns the number of the newest window, since the session's begin.
func (c *cohorts) newest() uint64 { return c.base + uint64(c.last) }

// beginAt adds empty windows before the first one.
func (c *cohorts) beginAt(first uint64) {
	d := int(c.base - first)
	if d == 0 {
		return
	}
	x := c.levels
	for i := CohortLen - 1; i >= 0; i-- {
		if i >= d {
			x.set(i, x.at(i-d))
		} else {
			x.set(i, level{})
		}
	}
	for p := c.parts; p != nil; p = p.next {
		var to [CohortLen]window
		copy(to[d:], p.list[:])
		p.list = to
	}
	c.base, c.last, c.highs = first, c.last+uint8(d), c.highs<<d
}

// leaveCohorts takes the windows of a site out of cohorts that it shares.
func (s *site) leaveCohorts() {
	if s.shared == nil {
		return
	}
	for at := &s.shared.parts; *at != nil; at = &(*at).next {
		if *at == s.own.parts {
			*at = (*at).next
			break
		}
	}
	s.own.parts.next, s.shared = nil, nil
}
