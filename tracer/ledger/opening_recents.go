// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// carryRecents carries the recent past of a site, after that of all which share it if it is the first.
func carryRecents(c *carrier, p *process, s *site) {
	if c.siteRef(p, &s); c.bad {
		return
	}
	x := s.cohorts()
	first := !c.reads() && c.renumber.isFirst(x, s)
	if c.flags(&first); first {
		c.recents(x)
	}
	if c.check(x.levels.recents != nil); c.bad {
		return
	}
	if c.reads() {
		x.adopt(s.own.parts)
	}
	for i := range s.own.parts.recent {
		w := &s.own.parts.recent[i]
		nums(c, &w.alloc, &w.live)
		nums(c, &w.allocObjects, &w.liveObjects)
	}
}

// isFirst reports whether a site is the first one of its cohorts.
func (o *opener) isFirst(x *cohorts, s *site) bool {
	group, shared := o.groups[x]
	return !shared || group == o.site[s]+1
}

// recents carries the recent past of one or more sites, without their counts.
func (c *carrier) recents(x *cohorts) {
	if c.reads() {
		if c.check(x.levels.recents == nil && x.shift > recentShift); c.bad {
			return
		}
		x.levels.recents = &recents{}
	}
	r := x.levels.recents
	most(c, &r.newest, math.MaxUint64>>recentShift)
	most(c, &r.first, r.newest)
	num(c, &r.until)
	c.float(&r.now)
	if c.bad {
		r.first, r.newest = 0, 0
	}
	if n := recentPlace(r.newest, r.first) + 1; c.reads() {
		c.l.spend(stepsPerByte * 32 * n)
		r.lows = make([]low, n)
	}
	for i := range r.lows {
		area := float64(r.lows[i].area)
		amount(c, &r.lows[i].floor, maxSum)
		amount(c, &r.lows[i].kept, maxSum)
		amount(c, &r.lows[i].young, maxSum)
		c.float(&area)
		r.lows[i].area = float32(area)
	}
	carryList(c, &r.records, maxRecent, func(x *Record) {
		amount(c, &x.Floor, maxSum)
		num(c, &x.Lowest)
		amount(c, &x.Kept, maxSum)
		amount(c, &x.Young, maxSum)
	})
}

func takeRecents(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 && !p.full() {
		carryRecents(c, p, nil)
	}
}
