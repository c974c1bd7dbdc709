// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"iter"
	"math/bits"
)

func (k *siteKey) classKey() classKey { return classKey{k.stack, k.device} }

// isButForClass reports whether two sites differ by size class only.
func (s *site) isButForClass(x *site) bool {
	key := x.siteKey
	key.class = s.class
	return s.siteKey == key
}

// maxRecentSites bounds the cache of a process's sites.
const maxRecentSites = 1 << 15

// site returns the site with this key.
func (p *heap) site(key siteKey) *site {
	if n := len(p.recent); n > 0 {
		if s := p.recent[key.slot(n)]; s != nil && s.siteKey == key {
			return s
		}
	}
	s := p.findSite(key)
	p.recent[key.slot(len(p.recent))] = s
	return s
}

// slot is a place in a cache of a power of two. Ids of stacks are hashes already, but need not be.
func (k *siteKey) slot(size int) uint64 {
	return (k.stack + k.context + uint64(uint32(k.device))<<8 + uint64(k.class)) * 0x9e3779b97f4a7c15 >> (64 - bits.TrailingZeros(uint(size)))
}

// at returns the site with a number, or nil.
func (p *heap) at(n uint32) *site {
	if int(n) < len(p.sites) {
		return p.sites[n]
	}
	return nil
}

// all yields the sites by number.
func (p *heap) all() iter.Seq[*site] {
	return func(yield func(*site) bool) {
		for _, s := range p.sites {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

func (p *heap) findSite(key siteKey) *site {
	if n, ok := p.siteOf[key]; ok {
		return p.sites[n]
	}
	p.spend(len(p.totals))
	s := &site{siteKey: key, ended: p.endings}
	if !p.room(tableSites) || !p.room(tableEver) {
		if key.stack != 0 {
			p.warnOf(fmt.Sprintf("process %d has too many stacks: allocations from the rest are shown without a stack", p.PID))
			key.stack, s.crowded = 0, 1
		}
		s.bare = true
		n, ok := p.siteOf[key]
		if !ok && (!p.room(tableBare) || !p.room(tableEver)) {
			key.context, s.free = 0, true
			n, ok = p.siteOf[key]
		}
		if ok {
			p.sites[n].crowded += s.crowded
			return p.sites[n]
		}
		s.siteKey = key
	}
	p.addSite(s)
	p.addCohorts(s)
	return s
}

// addSite gives a new site a number, and its sums, except those of kind Tensor.
func (p *heap) addSite(s *site) {
	switch {
	case s.free:
	case s.bare:
		p.hold(tableBare)
		p.hold(tableEver)
	default:
		p.hold(tableSites)
		p.hold(tableEver)
	}
	p.limiter.sites++
	switch s.kind {
	case aliased, Tensor:
	default:
		s.total, s.sum = p.total(s.device, s.kind), p.total(allDevices, s.kind)
	}
	if last := len(p.unused) - 1; last >= 0 {
		s.number, p.unused = p.unused[last], p.unused[:last]
		p.sites[s.number] = s
	} else {
		s.number = uint32(len(p.sites))
		p.sites = append(p.sites, s)
	}
	if p.siteOf == nil {
		p.siteOf, p.classes = make(map[siteKey]uint32), make(map[classKey]uint32)
	}
	p.siteOf[s.siteKey] = s.number
	if n := 2 * len(p.sites); n > len(p.recent) && len(p.recent) < maxRecentSites {
		p.recent = make([]*site, max(2*len(p.recent), 8))
	}
}

// dropSite makes the number of a site available to the next new one.
func (p *heap) dropSite(s *site) {
	switch {
	case s.free:
	case s.bare:
		p.give(tableBare)
	default:
		p.give(tableSites)
	}
	delete(p.siteOf, s.siteKey)
	if key := s.classKey(); s.kind == Tensor && p.classes[key] == s.number {
		delete(p.classes, key)
	}
	if slot := &p.recent[s.slot(len(p.recent))]; *slot == s {
		*slot = nil
	}
	p.sites[s.number] = nil
	p.unused = append(p.unused, s.number)
}

// addCohorts gives a new site its own cohorts, or makes it share those of another size class.
func (p *heap) addCohorts(s *site) {
	if s.kind == Tensor {
		first, known := p.classes[s.classKey()]
		if known && p.sites[first].isButForClass(s) {
			s.track.Share(&p.sites[first].track)
			return
		}
		if !known { // otherwise another one has the key, and its place
			p.classes[s.classKey()] = s.number
		}
	}
	s.track.Start()
}

// total returns the index of a total in heap.totals. A process has few.
func (p *heap) total(device int32, kind Kind) uint32 {
	for i := range p.totals {
		if t := &p.totals[i]; t.Device == device && t.Kind == kind {
			return uint32(i)
		}
	}
	p.totals = append(p.totals, runningTotal{Total: Total{Device: device, Kind: kind}})
	return uint32(len(p.totals) - 1)
}

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

// endedEarly returns how many live addresses were given out again, which the end of their contexts
// may explain.
func (p *heap) endedEarly() (n uint64) {
	for s := range p.all() {
		n += s.early.objects
	}
	return n
}

// recount counts the live entries of a site in their windows again.
func (p *heap) recount(s *site) {
	s.track.Recount(p.options.Begin, func(add func(birth, size uint64)) {
		for n := s.first; n != 0; {
			b := p.entries.at(n)
			add(b.time, weightOf(s, b))
			n = b.next
		}
	})
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
