// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

func (l *Ledger) free(e *Event) {
	if e.Address == 0 {
		return
	}
	if e.Space == Blocks {
		l.freeTensor(e)
		return
	}
	p := l.instance(e.PID, e.Time)
	if e.Space == Objects {
		l.freeObject(p, e)
		return
	}
	if e.Space == Physical && l.release(p, e) {
		return
	}
	last := lastFree{entry: entry{address: e.Address}, process: p, endings: l.endings, space: e.Space}
	key := liveKey{e.Address, p, e.Space}
	if n, ok := l.live[key]; ok {
		b := l.entries.at(n)
		last.entry, last.outcome = *b, freed
		if b.extra != 0 && l.sites[b.site].kind != Async {
			b.extra--
		} else {
			l.drop(key, n, e.Time)
		}
	} else {
		l.unmatched(p, e.Space, e)
	}
	l.remember(e.TID, last)
}

// unmatched counts a free or an unmapping of memory that is not booked.
func (l *Ledger) unmatched(process uint32, space Space, e *Event) {
	l.stats.UnmatchedFrees++
	p := &l.procs[process]
	p.olderFreed = max(p.olderFreed, e.Time)
	if l.observer != nil {
		l.observer.Unmatched(Allocation{Process: process, PID: p.PID, Space: space, Address: e.Address, Size: e.Size}, e.Time)
	}
}

// drop ends an allocation.
func (l *Ledger) drop(key liveKey, n uint32, time uint64) {
	b := l.entries.at(n)
	site, address, size, extra, birth := b.site, b.address, b.size, b.extra, b.time
	l.giveRoom(&l.procs[key.process], b)
	s := &l.sites[site]
	if l.observer != nil && s.kind != aliased {
		l.observer.Freed(l.allocation(n), time)
	}
	l.unlink(n)
	l.dropEntry(key, n)
	if s.kind == aliased {
		return
	}
	if extra != 0 && s.kind == Async {
		l.leavePool(extra, address, size)
	}
	l.segmentChanged(site, size, time, true)
	if size == 0 {
		l.stats.UnknownSizes--
	}
	l.procs[key.process].keep(s)
	s.liveObjects--
	s.liveBytes -= size
	s.history.record(l.options.Begin, time, s.liveBytes)
	s.died(l.options.Begin, birth, time, size)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &l.procs[key.process].totals[t]
		t.LiveObjects--
		t.LiveBytes -= size
		t.low = min(t.low, t.LiveBytes)
	}
}

// remember keeps the effect of a thread's latest free.
func (l *Ledger) remember(tid uint32, last lastFree) {
	if before, ok := l.lastFree[tid]; ok {
		if before.process == last.process && before.outcome != lessPhysical {
			l.lastFree[tid] = last
			return
		}
		l.forgetFree(tid)
	}
	p := &l.procs[last.process]
	if p.purged {
		return
	}
	s := &l.quotas[tableFrees]
	if !s.Room(int(p.held[tableFrees]), int(p.user[tableFrees])) {
		if p.held[tableFrees] == 0 {
			p.beyond[tableFrees]++
			return
		}
		l.forgetFrees(func(of uint32) bool { return of == last.process })
	}
	l.hold(tableFrees, p)
	l.lastFree[tid] = last
}

// forgetFree drops the effect of a thread's latest free.
func (l *Ledger) forgetFree(tid uint32) {
	last, ok := l.lastFree[tid]
	if !ok {
		return
	}
	p := &l.procs[last.process]
	delete(l.lastFree, tid)
	l.give(tableFrees, p)
	if last.outcome == lessPhysical {
		l.giveAll(tableUnmapped, p, len(l.released[tid].ended))
		delete(l.released, tid)
	}
}

// forgetFrees drops the latest frees of processes that match. Most of their threads have ended; at
// worst, some failed frees are not undone.
func (l *Ledger) forgetFrees(of func(process uint32) bool) {
	for tid, last := range l.lastFree {
		if of(last.process) {
			l.forgetFree(tid)
		}
	}
}

// freeFailed undoes the last free of the thread.
func (l *Ledger) freeFailed(e *Event) {
	last, ok := l.lastFree[e.TID]
	if !ok || e.Address != 0 && e.Address != last.entry.address {
		return
	}
	p := &l.procs[last.process]
	if p.PID != e.PID || p.End != 0 && e.Time > p.End {
		return
	}
	if last.outcome != lessPhysical {
		l.forgetFree(e.TID)
	}
	switch {
	case last.outcome == unmatched:
		l.stats.UnmatchedFrees--
		if last.entry.size != 0 { // an unmapping failed
			start, end := span(last.entry.address, last.entry.size)
			l.forgetAddresses(last.process, start, end)
		}
	case e.Result == resultDeinitialized:
	case last.outcome == lessPhysical:
		l.undoPhysical(last.process, e)
	case p.purged: // its site is archived
	default:
		l.restore(&last, e.Time)
	}
}

// restore revives a freed entry, or gives it a reference back.
func (l *Ledger) restore(last *lastFree, time uint64) {
	s := &l.sites[last.entry.site]
	if int32(s.ended-last.endings) > 0 {
		return // its context ended meanwhile
	}
	key := liveKey{last.entry.address, last.process, last.space}
	shared := s.kind == Imported || s.kind == aliased
	if n, taken := l.live[key]; taken {
		// An address that was given out again had been freed, whatever the call returned, but a
		// counted one means the same memory.
		if b := l.entries.at(n); shared && l.sites[b.site].kind == s.kind {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
		}
		return
	}
	if shared {
		last.entry.extra = 0 // other threads have freed the others
	}
	l.revive(key, last.entry, time)
}

// revive makes an ended entry live again, and reports whether there was room.
func (l *Ledger) revive(key liveKey, b entry, time uint64) bool {
	s := &l.sites[b.site]
	if !l.room(tableLive, &l.procs[key.process]) {
		l.evict(s)
		return false
	}
	if s.kind != aliased {
		l.addLive(s, b.size, time)
		s.revived(l.options.Begin, b.time, b.size)
		l.segmentChanged(b.site, b.size, time, false)
	}
	if l.procs[key.process].purged {
		return false
	}
	if s.kind == Async && b.extra != 0 {
		if p := &l.pools[b.extra]; p.inUse && p.process == key.process {
			p.add(b.address, b.size)
		} else {
			b.extra = 0 // the pool was destroyed, and this was its last allocation
		}
	}
	near := b.prev
	n := l.addEntry(key, &l.procs[key.process], b)
	l.link(n, near)
	if l.observer != nil && s.kind != aliased {
		l.observer.Allocated(l.allocation(n), time)
	}
	return true
}
