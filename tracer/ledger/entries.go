// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

const (
	chunkBits  = 13
	chunkLen   = 1 << chunkBits
	firstChunk = 8 // places at first: most processes have few allocations

	// Most steps that an entry is moved to its place by time. Events come nearly in order; beyond
	// this, the age of a site's oldest allocation may be wrong.
	maxSteps = 1024

	noSite = math.MaxUint32 // site of a free place
)

// entry is a live allocation or block, or a free place. Number 0 means none.
type entry struct {
	address, size, time uint64
	site                uint32
	prev, next          uint32 // in the list of the site, oldest first
	// Async: its pool; imported and aliased: references beyond the first; Tensor: its halvings.
	extra uint32
}

// entries stores entries in chunks, of which only the first grows. A pointer to an entry is valid
// until the next call of take.
type entries struct {
	chunks [][]entry
	used   uint32 // places ever handed out
	free   uint32 // list of free places through next
}

func (s *entries) at(n uint32) *entry { return &s.chunks[n>>chunkBits][n&(chunkLen-1)] }

func (s *entries) take(b entry) uint32 {
	n := s.free
	if n != 0 {
		s.free = s.at(n).next
	} else {
		s.used++
		n = s.used
		s.grow(n)
	}
	*s.at(n) = b
	return n
}

// grow makes room for a number.
func (s *entries) grow(n uint32) {
	switch chunk := int(n >> chunkBits); {
	case chunk > 0 && chunk >= len(s.chunks):
		s.chunks = append(s.chunks, make([]entry, chunkLen))
	case chunk == 0 && len(s.chunks) == 0:
		s.chunks = [][]entry{make([]entry, firstChunk)}
	case chunk == 0 && int(n) >= len(s.chunks[0]):
		s.chunks[0] = append(make([]entry, 0, 2*len(s.chunks[0])), s.chunks[0]...)[:2*len(s.chunks[0])]
	}
}

func (s *entries) release(n uint32) {
	*s.at(n) = entry{site: noSite, next: s.free}
	s.free = n
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

// leastEntries is from how many places for live allocations on memory is given back when most are
// free.
const leastEntries = 1 << 16

// compact gives the memory of free places back if they are more than three of four.
func (p *process) compact() {
	if p.entries.used >= leastEntries && len(p.live) <= int(p.entries.used)/4 {
		p.moveEntries()
		p.forgetNeighbors()
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
