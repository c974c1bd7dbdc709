// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

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

// freeObject ends an object of the kernel driver. Most have no memory of a GPU, and are not booked. The
// thread's last free, which may be the call that this one is part of, stays the one to undo.
func (p *poolSet) freeObject(e *Event) {
	key := liveKey{e.Address, Objects}
	if n, ok := p.live[key]; ok {
		p.drop(key, n, e.Time)
	} else {
		p.endClient(e)
	}
}

// endClient ends what a client of the kernel driver has of GPUs, if the event is its end. libcuda gives
// its objects back one by one; a program may also close the client, which is its own handle.
func (p *poolSet) endClient(e *Event) {
	client := e.Address >> 32
	if client != e.Address&0xffffffff {
		return
	}
	if p.clients[client] == 0 { // a program may end others in a loop
		return
	}
	p.spend(8 * len(p.sites))
	for s := range p.all() {
		if s.space != Objects {
			continue
		}
		for b := s.first; b != 0; {
			x := p.entries.at(b)
			here := b
			b = x.next
			if x.address>>32 == client {
				p.drop(liveKey{x.address, Objects}, here, e.Time)
			}
		}
	}
}
