// SPDX-License-Identifier: Apache-2.0

package ledger

// link puts entry n into its site's list by time. near is an entry, live or not, next to which it
// probably belongs.
func (p *heap) link(n, near uint32) {
	b := p.entries.at(n)
	s := p.sites[b.site]
	after := near
	if near == 0 || p.entries.at(near).site != b.site {
		after = s.last
	}
	if after == n {
		after = s.last // near was freed, and n has its place now
	}
	steps := 0
	for ; after != 0 && p.entries.at(after).time > b.time && steps < maxSteps; steps++ {
		after = p.entries.at(after).prev
	}
	p.spend(steps)
	for steps = 0; after != 0 && steps < maxSteps; steps++ {
		next := p.entries.at(after).next
		if next == 0 || p.entries.at(next).time >= b.time {
			break
		}
		after = next
	}
	p.spend(steps)
	b.prev, b.next = after, s.first
	if after != 0 {
		b.next = p.entries.at(after).next
		p.entries.at(after).next = n
	} else {
		s.first = n
	}
	if b.next != 0 {
		p.entries.at(b.next).prev = n
	} else {
		s.last = n
	}
}

func (p *heap) unlink(n uint32) {
	b := p.entries.at(n)
	s := p.sites[b.site]
	if b.prev != 0 {
		p.entries.at(b.prev).next = b.next
	} else {
		s.first = b.next
	}
	if b.next != 0 {
		p.entries.at(b.next).prev = b.prev
	} else {
		s.last = b.prev
	}
}

// moveEntries moves all live allocations to new memory. Their order in lists is all that stays.
func (p *heap) moveEntries() {
	p.spend(64 * len(p.live))
	old := p.entries
	p.entries, p.live = entries{}, make(map[liveKey]uint32, len(p.live))
	for s := range p.all() {
		before := uint32(0)
		for n := s.first; n != 0; {
			b := *old.at(n)
			n, b.prev, b.next = b.next, before, 0
			now := p.entries.take(b)
			if before == 0 {
				s.first = now
			} else {
				p.entries.at(before).next = now
			}
			p.live[liveKey{b.address, s.space}] = now
			before = now
		}
		s.last = before
	}
}

// reuse notes that the address of a live allocation is given out again. The end of its context may
// be about to be reported: the driver reuses addresses, and the context's own handle, before the
// call that ends the context returns.
func (p *heap) reuse(s *site, size uint64) {
	if s.context == 0 {
		p.stats.Reused++
		return
	}
	s.early.objects++
	s.early.bytes += size
}

// endedEarly returns how many live addresses were given out again, which the end of their contexts may
// explain.
func (p *heap) endedEarly() (n uint64) {
	for s := range p.all() {
		n += s.early.objects
	}
	return n
}

// recount counts the live entries of a site in their windows again.
func (p *heap) recount(s *site) {
	c, list := s.cohorts(), &s.own.parts.list
	for i := range list {
		w := &list[i]
		w.alloc -= w.live
		w.allocObjects -= min(w.liveObjects, w.allocObjects)
		w.live, w.liveObjects = 0, 0
	}
	for i := range s.own.parts.recent {
		w := &s.own.parts.recent[i]
		w.alloc -= min(w.live, w.alloc)
		w.allocObjects -= min(w.liveObjects, w.allocObjects)
		w.live, w.liveObjects = 0, 0
	}
	for n := s.first; n != 0; {
		b := p.entries.at(n)
		size := weightOf(s, b)
		list[c.index(p.options.Begin, b.time)].allocated(size)
		if c.levels.recents != nil {
			s.recent(p.options.Begin, b.time).allocated(size)
		}
		n = b.next
	}
}

// eachInPool calls do with what lives in a pool.
func (p *heap) eachInPool(n uint32, do func(address, size uint64)) {
	for s := range p.all() {
		if s.kind != Async {
			continue
		}
		for k := s.first; k != 0; k = p.entries.at(k).next {
			if b := p.entries.at(k); b.extra == n && b.size > 0 {
				do(b.address, b.size)
			}
			p.spend(1)
		}
	}
	p.spend(len(p.sites))
}

// purgeSite drops the entries of a site, and returns how many of them have an unknown size.
func (p *heap) purgeSite(s *site) (unsized uint64) {
	if s.first != 0 {
		s.oldest = p.entries.at(s.first).time
	}
	for n := s.first; n != 0; {
		b := p.entries.at(n)
		next := b.next
		if b.size == 0 && s.kind != aliased {
			unsized++
		}
		p.dropEntry(liveKey{b.address, s.space}, n)
		n = next
	}
	s.first, s.last = 0, 0
	return unsized
}
