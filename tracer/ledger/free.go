// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

func (p *driver) free(e *Event) {
	switch e.Space {
	case Blocks:
		p.freeTensor(e)
		return
	case Objects:
		p.freeObject(e)
		return
	}
	if e.Space == Physical && p.release(e) {
		return
	}
	last := lastFree{entry: entry{address: e.Address}, endings: p.endings, space: e.Space}
	key := liveKey{e.Address, e.Space}
	if n, ok := p.live[key]; ok {
		b := p.entries.at(n)
		last.entry, last.outcome = *b, freed
		if b.extra != 0 && p.sites[b.site].kind != Async {
			b.extra--
		} else {
			p.drop(key, n, e.Time)
		}
	} else {
		p.unmatched(e.Space, e)
	}
	p.remember(e.TID, last)
}

// unmatched counts a free or an unmapping of memory that is not booked.
func (p *driver) unmatched(space Space, e *Event) {
	p.stats.UnmatchedFrees++
	p.olderFreed = max(p.olderFreed, e.Time)
	if p.observer != nil {
		p.observer.Unmatched(Allocation{Process: p.number, PID: p.PID, Space: space, Address: e.Address, Size: e.Size}, e.Time)
	}
}

// drop ends an allocation.
func (p *poolSet) drop(key liveKey, n uint32, time uint64) {
	b := p.entries.at(n)
	s, address, size, extra, birth := p.sites[b.site], b.address, b.size, b.extra, b.time
	p.giveRoom(b)
	if p.observer != nil && s.kind != aliased {
		p.observer.Freed(p.allocation(n), time)
	}
	p.unlink(n)
	p.dropEntry(key, n)
	if s.kind == aliased {
		return
	}
	if extra != 0 && s.kind == Async {
		p.leavePool(extra, address, size)
	}
	p.segmentChanged(s, size, time, true)
	if size == 0 {
		p.stats.UnknownSizes--
	}
	p.keep(s)
	s.liveObjects--
	s.liveBytes -= size
	s.history.record(p.options.Begin, time, s.liveBytes)
	s.died(p.options.Begin, birth, time, size)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.LiveObjects--
		t.LiveBytes -= size
		t.low = min(t.low, t.LiveBytes)
	}
}

// remember keeps the effect of a thread's latest free.
func (p *driver) remember(tid uint32, last lastFree) {
	if before, ok := p.lastFree[tid]; ok {
		if before.outcome != lessPhysical {
			p.lastFree[tid] = last
			return
		}
		p.forgetFree(tid)
	}
	if p.purged {
		return
	}
	if !p.hasRoomFor(tableFrees, 0) {
		if p.held[tableFrees] == 0 {
			p.beyond[tableFrees]++
			return
		}
		p.forgetFrees()
	}
	p.hold(tableFrees)
	p.withUndo().lastFree[tid] = last
}

// forgetFree drops the effect of a thread's latest free.
func (p *driver) forgetFree(tid uint32) {
	last, ok := p.lastFree[tid]
	if !ok {
		return
	}
	delete(p.lastFree, tid)
	p.give(tableFrees)
	if last.outcome == lessPhysical {
		p.giveAll(tableUnmapped, len(p.released[tid].ended))
		delete(p.released, tid)
	}
}

// forgetFrees drops the latest frees of all threads. Most have ended; at worst, some failed frees
// are not undone.
func (p *driver) forgetFrees() {
	for tid := range p.lastFree {
		p.forgetFree(tid)
	}
	p.lastFree, p.released = nil, nil
}

// freeFailed undoes the last free of the thread.
func (p *driver) freeFailed(e *Event) {
	last, ok := p.lastFree[e.TID]
	if !ok || e.Address != 0 && e.Address != last.entry.address {
		return
	}
	if last.outcome != lessPhysical {
		p.forgetFree(e.TID)
	}
	switch {
	case last.outcome == unmatched:
		p.stats.UnmatchedFrees--
		if last.entry.size != 0 { // an unmapping failed
			start, end := span(last.entry.address, last.entry.size)
			p.forgetAddresses(start, end)
		}
	case e.Result == resultDeinitialized:
	case last.outcome == lessPhysical:
		p.undoPhysical(e)
	case p.purged: // its site is archived
	default:
		p.restore(&last, e.Time)
	}
}

// restore revives a freed entry, or gives it a reference back.
func (p *poolSet) restore(last *lastFree, time uint64) {
	s := p.sites[last.entry.site]
	if s.ended > last.endings {
		return // its context ended meanwhile
	}
	key := liveKey{last.entry.address, last.space}
	shared := s.kind == Imported || s.kind == aliased
	if n, taken := p.live[key]; taken {
		// An address that was given out again had been freed, whatever the call returned, but a
		// counted one means the same memory.
		if b := p.entries.at(n); shared && p.sites[b.site].kind == s.kind {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
		}
		return
	}
	if shared {
		last.entry.extra = 0 // other threads have freed the others
	}
	p.revive(key, last.entry, time)
}

// revive makes an ended entry live again, and reports whether there was room.
func (p *poolSet) revive(key liveKey, b entry, time uint64) bool {
	s := p.sites[b.site]
	if !p.room(tableLive) {
		p.evict(s)
		return false
	}
	if s.kind != aliased {
		p.addLive(s, b.size, time)
		s.revived(p.options.Begin, b.time, b.size)
		p.segmentChanged(s, b.size, time, false)
	}
	if p.purged {
		return false
	}
	if s.kind == Async && b.extra != 0 {
		if x := p.pool(b.extra); x != nil {
			x.add(b.address, b.size)
		} else {
			b.extra = 0 // the pool was destroyed, and this was its last allocation
		}
	}
	near := b.prev
	n := p.addEntry(key, b)
	p.link(n, near)
	if p.observer != nil && s.kind != aliased {
		p.observer.Allocated(p.allocation(n), time)
	}
	return true
}
