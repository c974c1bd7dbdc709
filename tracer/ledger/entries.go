// SPDX-License-Identifier: Apache-2.0

package ledger

const (
	chunkBits = 13
	chunkLen  = 1 << chunkBits

	// Most steps that an entry is moved to its place by time. Events come nearly in order; beyond
	// this, the age of a site's oldest allocation may be wrong.
	maxSteps = 1024

	noSite = none // site of a free place
)

// entry is a live allocation or block, or a free place. Number 0 means none.
type entry struct {
	address, size, time uint64
	site                uint32
	prev, next          uint32 // in the list of the site, oldest first
	// Async: its pool; imported and aliased: references beyond the first; Tensor: its halvings.
	extra uint32
}

// entries stores entries in chunks that never move, so that growing copies nothing.
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
		if int(n>>chunkBits) >= len(s.chunks) {
			s.chunks = append(s.chunks, make([]entry, chunkLen))
		}
	}
	*s.at(n) = b
	return n
}

func (s *entries) release(n uint32) {
	*s.at(n) = entry{site: noSite, next: s.free}
	s.free = n
}

// link puts entry n into its site's list by time. near is an entry, live or not, next to which it
// probably belongs.
func (l *Ledger) link(n, near uint32) {
	b := l.entries.at(n)
	s := &l.sites[b.site]
	after := near
	if near == 0 || l.entries.at(near).site != b.site {
		after = s.last
	}
	if after == n {
		after = s.last // near was freed, and n has its place now
	}
	steps := 0
	for ; after != 0 && l.entries.at(after).time > b.time && steps < maxSteps; steps++ {
		after = l.entries.at(after).prev
	}
	l.spend(steps)
	for steps = 0; after != 0 && steps < maxSteps; steps++ {
		next := l.entries.at(after).next
		if next == 0 || l.entries.at(next).time >= b.time {
			break
		}
		after = next
	}
	l.spend(steps)
	b.prev, b.next = after, s.first
	if after != 0 {
		b.next = l.entries.at(after).next
		l.entries.at(after).next = n
	} else {
		s.first = n
	}
	if b.next != 0 {
		l.entries.at(b.next).prev = n
	} else {
		s.last = n
	}
}

func (l *Ledger) unlink(n uint32) {
	b := l.entries.at(n)
	s := &l.sites[b.site]
	if b.prev != 0 {
		l.entries.at(b.prev).next = b.next
	} else {
		s.first = b.next
	}
	if b.next != 0 {
		l.entries.at(b.next).prev = b.prev
	} else {
		s.last = b.prev
	}
}
