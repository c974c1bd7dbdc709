// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// evict counts an allocation that the process has no room for. No live figure includes it.
func (p *heap) evict(s *site) {
	p.stats.Evicted++
	s.evicted++
}

// addEntry makes an allocation live.
func (p *heap) addEntry(key liveKey, b entry) uint32 {
	n := p.entries.take(b)
	if p.live == nil {
		p.live = make(map[liveKey]uint32)
	}
	p.live[key] = n
	p.hold(tableLive)
	p.takeRoom(&b)
	return n
}

// dropEntry ends a live allocation that is in no list any more.
func (p *heap) dropEntry(key liveKey, n uint32) {
	if p.walks != nil {
		p.noteFreed(key, n)
	}
	delete(p.live, key)
	p.entries.release(n)
	p.give(tableLive)
}

func (p *heap) addLive(s *site, size, time uint64) {
	if size == 0 {
		p.stats.UnknownSizes++
		if p.purged {
			p.unsized++
		}
	}
	p.keep(s)
	s.liveObjects++
	s.liveBytes += size
	s.track.History.Record(p.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.LiveObjects++
		t.LiveBytes += size
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}

// grow makes a live entry of unknown or too small a size larger.
func (p *heap) grow(n uint32, size, time uint64) {
	b := p.entries.at(n)
	s := p.sites[b.site]
	if size <= b.size || size > maxSize || size-b.size > maxSum-p.totals[s.sum].AllocBytes {
		return
	}
	if b.size == 0 {
		p.stats.UnknownSizes--
	}
	more := size - b.size
	b.size = size
	p.keep(s)
	s.allocBytes += more
	s.liveBytes += more
	s.track.History.Record(p.options.Begin, time, s.liveBytes)
	s.track.Grow(p.options.Begin, b.time, more)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.AllocBytes += more
		t.LiveBytes += more
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}

// allocation returns live block n as an Observer sees it.
func (p *heap) allocation(n uint32) Allocation {
	b := p.entries.at(n)
	s := p.sites[b.site]
	space := s.space
	if space == memories {
		space = Physical
	}
	return Allocation{
		Process: p.number, PID: p.PID, Device: s.device, Kind: s.kind, Space: space,
		Address: b.address, Size: b.size, Time: b.time, Stack: s.stack, API: s.api,
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
	s.track.History.Record(p.options.Begin, time, s.liveBytes)
	s.track.Remove(p.options.Begin, birth, time, size)
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
		s.track.Revive(p.options.Begin, b.time, b.size)
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

// freeObject ends an object of the kernel driver. Most have no memory of a GPU, and are not booked.
// The thread's last free, which may be the call that this one is part of, stays the one to undo.
func (p *poolSet) freeObject(e *Event) {
	key := liveKey{e.Address, Objects}
	if n, ok := p.live[key]; ok {
		p.drop(key, n, e.Time)
	} else {
		p.endClient(e)
	}
}

// endClient ends what a client of the kernel driver has of GPUs, if the event is its end. libcuda
// gives its objects back one by one; a program may also close the client, which is its own handle.
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
