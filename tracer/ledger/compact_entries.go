// SPDX-License-Identifier: Apache-2.0

package ledger

// leastEntries is from how many places for live allocations on memory is given back when most are
// free.
const leastEntries = 1 << 16

// compactEntries gives the memory of free places back if they are more than three of four, as after a
// process with very many allocations.
func (l *Ledger) compactEntries() {
	if l.entries.used >= leastEntries && len(l.live) <= int(l.entries.used)/4 {
		l.moveEntries()
	}
}

// moveEntries moves all live allocations to new memory.
func (l *Ledger) moveEntries() {
	l.spend(64 * len(l.live))
	old := l.entries
	l.entries = entries{}
	l.live = make(map[liveKey]uint32, len(l.live))
	for i := range l.sites {
		s := &l.sites[i]
		before := uint32(0)
		for n := s.first; n != 0; {
			b := *old.at(n)
			n, b.prev, b.next = b.next, before, 0
			now := l.entries.take(b)
			if before == 0 {
				s.first = now
			} else {
				l.entries.at(before).next = now
			}
			l.live[liveKey{b.address, s.process, s.space}] = now
			before = now
		}
		s.last = before
	}
	for tid, x := range l.lastFree { // where they were in their lists
		x.entry.prev, x.entry.next = 0, 0
		l.lastFree[tid] = x
	}
	for tid, r := range l.released {
		r.held.entry.prev, r.held.entry.next = 0, 0
		for i := range r.ended {
			r.ended[i].of.entry.prev, r.ended[i].of.entry.next = 0, 0
		}
		l.released[tid] = r
	}
}
