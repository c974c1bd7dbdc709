// SPDX-License-Identifier: Apache-2.0

package ledger

// leastCompact is from how many sites on memory is given back when most are unused.
const leastCompact = 1 << 12

// compactSites gives the memory of unused site numbers back if they are more than half. It takes as
// long as looking at all live allocations.
func (l *Ledger) compactSites() {
	if len(l.sites) >= leastCompact && len(l.freeSites) > len(l.sites)/2 {
		l.moveSites()
	}
}

// moveSites gives all sites new numbers.
func (l *Ledger) moveSites() {
	l.spend(8*len(l.live) + 64*len(l.sites))
	c := compaction{to: make([]uint32, len(l.sites)), parts: map[*windows]*windows{}, levels: map[*levels]*levels{}, shared: map[*cohorts]bool{}}
	sites := make([]site, 0, len(l.sites)-len(l.freeSites))
	for n := range l.sites {
		if s := &l.sites[n]; s.process != none {
			c.to[n] = uint32(len(sites))
			sites = append(sites, *s)
		}
	}
	l.sites, l.freeSites, l.windows, l.levels = sites, nil, nil, nil
	c.move(sites)
	l.siteOf, l.classes = make(map[siteKey]uint32, len(sites)), remade(l.classes, c.at)
	for n := range sites {
		s := &sites[n]
		l.siteOf[s.siteKey] = uint32(n)
		for e := s.first; e != 0; e = l.entries.at(e).next {
			l.entries.at(e).site = uint32(n)
		}
	}
	for n := range l.procs {
		p := &l.procs[n]
		for i := range p.sites {
			p.sites[i] = c.at(p.sites[i])
		}
		if !p.purged { // otherwise they are indexes in its archive
			p.renumber(c.at)
		}
	}
	l.renumberFrees(c.at)
	clear(l.recent[:])
}

// compaction moves sites.
type compaction struct {
	to     []uint32 // by old number
	parts  map[*windows]*windows
	levels map[*levels]*levels
	shared map[*cohorts]bool // that have been moved
}

func (c *compaction) at(n uint32) uint32 { return c.to[n] }

// move moves the windows of sites to memory of their own.
func (c *compaction) move(sites []site) {
	var windowsLeft []windows
	var levelsLeft []levels
	for n := range sites {
		s := &sites[n]
		if len(windowsLeft) == 0 {
			windowsLeft = make([]windows, windowsPiece)
		}
		to := &windowsLeft[0]
		windowsLeft = windowsLeft[1:]
		*to, c.parts[s.own.parts] = *s.own.parts, to
		s.own.parts = to
		x := s.cohorts()
		if s.shared != nil {
			s.own.levels = nil
		}
		if _, moved := c.levels[x.levels]; !moved && x.levels != nil {
			if len(levelsLeft) == 0 {
				levelsLeft = make([]levels, levelsPiece)
			}
			levelsLeft[0] = *x.levels
			c.levels[x.levels], levelsLeft = &levelsLeft[0], levelsLeft[1:]
		}
	}
	for n := range sites {
		s := &sites[n]
		s.own.parts.next = c.parts[s.own.parts.next]
		x := s.cohorts()
		if s.shared == nil {
			s.own.levels = c.levels[x.levels]
		} else if !c.shared[x] {
			c.shared[x] = true
			x.parts, x.levels = c.parts[x.parts], c.levels[x.levels]
		}
	}
}

// remade returns a map with other values, without the room for those that it had before.
func remade(m map[uint64]uint32, to func(uint32) uint32) map[uint64]uint32 {
	list := make(map[uint64]uint32, len(m))
	for key, n := range m {
		list[key] = to(n)
	}
	return list
}
