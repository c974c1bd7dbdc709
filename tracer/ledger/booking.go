// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"math"
)

func (l *Ledger) alloc(e *Event) {
	if e.Kind == Tensor || e.Space == Blocks {
		l.allocTensor(e)
		l.tellTotals(e)
		return
	}
	if e.Address == 0 {
		return // cudaMalloc(0) succeeds with a null pointer
	}
	if e.Size == 0 {
		if e.Space != Addresses {
			l.view(e) // a multicast handle, a sparse array: it has no memory of its own
		}
		return
	}
	if e.Space == Physical {
		l.allocPhysical(e)
		return
	}
	p := l.instance(e.PID, e.Time)
	key := liveKey{e.Address, p, e.Space}
	if old, ok := l.live[key]; ok {
		b := l.blocks.at(old)
		s := &l.sites[b.site]
		if s.kind == Imported && e.Kind == Imported && s.context == e.Context {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
			return
		}
		if s.kind != viewed {
			l.reuse(s, b.size)
		}
		l.drop(key, old, e.Time)
	}
	l.book(key, e)
}

// book adds an allocation and returns the number of its block; 0 if it has none.
func (l *Ledger) book(key liveKey, e *Event) uint32 {
	device, pool := l.place(key.process, e)
	kind := e.Kind
	if k := l.pools[pool].kind; k != 0 { // not of a GPU: nothing that pools hold is on one
		kind, pool = k, 0
	}
	n := l.site(siteKey{stack: e.Stack, context: e.Context, process: key.process, device: device, kind: kind, space: key.space, api: e.API})
	s, p := &l.sites[n], &l.procs[key.process]
	l.noteOwner(s.siteKey, e)
	size := e.Size
	if size > maxSize {
		size = l.sizeOf(e)
	}
	if size > maxSum-p.totals[s.sum].AllocBytes {
		size = 0
	}
	s.allocObjects++
	s.allocBytes += size
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.AllocObjects++
		t.AllocBytes += size
	}
	if !l.room(tableLive, p) {
		l.evict(s)
		return 0
	}
	l.addLive(s, size, e.Time)
	s.aged(l.options.Begin, e.Time, size)
	l.segmentChanged(n, size, e.Time, false)
	if p.purged {
		return 0 // a straggler: too late to be freed, so it needs no block
	}
	if pool != 0 {
		l.pools[pool].add(size)
	}
	b := l.addBlock(key, p, block{address: key.address, size: size, time: e.Time, site: n, extra: pool})
	l.link(b, s.last)
	if device == UnknownDevice {
		l.addStray(key, e)
	}
	if l.observer != nil {
		l.observer.Allocated(l.allocation(b), e.Time)
	}
	return b
}

// evict counts an allocation of a site that no live figure has, as its process has no room for it.
func (l *Ledger) evict(s *site) {
	l.stats.Evicted++
	s.evicted++
}

// addBlock makes an allocation live.
func (l *Ledger) addBlock(key liveKey, p *process, b block) uint32 {
	n := l.blocks.take(b)
	l.live[key] = n
	l.hold(tableLive, p)
	return n
}

// dropBlock ends a live allocation that is in no list any more.
func (l *Ledger) dropBlock(key liveKey, n uint32) {
	delete(l.live, key)
	l.blocks.release(n)
	l.give(tableLive, &l.procs[key.process])
}

// place returns the device and the pool of an allocation.
func (l *Ledger) place(process uint32, e *Event) (device int32, pool uint32) {
	device = e.Device
	if uint32(device) >= maxDevices {
		device = UnknownDevice
		if e.Context != 0 {
			device = l.procs[process].deviceOf(e.Context)
		}
	}
	if e.Kind == Async && e.Space == Addresses {
		return l.poolFor(process, e.Handle, device)
	}
	return device, 0
}

// view remembers an address that is no allocation.
func (l *Ledger) view(e *Event) {
	if e.Address == 0 || e.Space == Blocks {
		return
	}
	p := l.instance(e.PID, e.Time)
	if l.procs[p].purged {
		return
	}
	key := liveKey{e.Address, p, e.Space}
	if e.Space == Physical {
		l.reuseHandle(p, e.Address, e.Time)
	}
	if old, ok := l.live[key]; ok {
		b := l.blocks.at(old)
		s := &l.sites[b.site]
		if s.kind == viewed {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
			return
		}
		l.reuse(s, b.size)
		l.drop(key, old, e.Time)
	}
	if !l.room(tableLive, &l.procs[p]) {
		l.stats.Evicted++
		return
	}
	device, _ := l.place(p, &Event{Device: e.Device, Context: e.Context})
	n := l.site(siteKey{context: e.Context, process: p, device: device, kind: viewed, space: e.Space})
	b := l.addBlock(key, &l.procs[p], block{address: e.Address, time: e.Time, site: n})
	l.link(b, l.sites[n].last)
}

func (l *Ledger) allocFailed(e *Event) {
	p := l.instance(e.PID, e.Time)
	device, size, kind := e.Device, e.Size, e.Kind
	if uint32(device) >= maxDevices {
		device = UnknownDevice
	}
	if n, ok := l.procs[p].pools[keyOfPool(e.Handle, UnknownDevice)]; ok && e.Handle != 0 && e.Kind == Async {
		device, kind = l.pools[n].on(), cmp.Or(l.pools[n].kind, kind)
	}
	if size == UnknownSize {
		size = 0
	}
	key := failureKey{siteKey{stack: e.Stack, process: p, device: device, kind: kind, api: e.API}, e.Result}
	f, q := l.failures[key], &l.procs[p]
	var crowded uint64
	if f == nil && l.room(tableFailures, q) {
		l.hold(tableFailures, q)
	} else if f == nil {
		l.warnOf(e.PID, fmt.Sprintf("process %d has too many different sites of failed allocations: further ones are shown without their stacks", e.PID))
		key.stack, crowded = 0, 1
		if f = l.failures[key]; f == nil && q.bareFailures >= maxBareFailures {
			key.result = resultUnknown
			f = l.failures[key]
		}
		if f == nil {
			q.bareFailures++
		}
	}
	if f == nil {
		f = &Failure{}
		l.failures[key] = f
	}
	f.Crowded += crowded
	f.Count++
	f.Bytes += min(size, math.MaxUint64-f.Bytes)
	f.LastBytes, f.LastTime = size, e.Time
}

func (l *Ledger) free(e *Event) {
	if e.Address == 0 {
		return
	}
	if e.Space == Blocks {
		l.freeTensor(e)
		return
	}
	p := l.instance(e.PID, e.Time)
	if e.Space == Physical && l.release(p, e) {
		return
	}
	last := lastFree{block: block{address: e.Address}, process: p, endings: l.endings, space: e.Space}
	key := liveKey{e.Address, p, e.Space}
	if n, ok := l.live[key]; ok {
		b := l.blocks.at(n)
		last.block, last.outcome = *b, freed
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

// remember keeps what the latest free of a thread did.
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
	s := &l.shares[tableFrees]
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

// forgetFree drops what a thread's last free did.
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

// forgetFrees makes room: most are of threads long gone, and at worst some failed frees of these processes are not undone.
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
	if !ok || e.Address != 0 && e.Address != last.block.address {
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
		if last.block.size != 0 { // of an unmapping that failed
			start, end := span(last.block.address, last.block.size)
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

// restore gives a freed block, or a reference of it, back.
func (l *Ledger) restore(last *lastFree, time uint64) {
	s := &l.sites[last.block.site]
	if int32(s.ended-last.endings) > 0 {
		return // its context ended in the meantime
	}
	key := liveKey{last.block.address, last.process, last.space}
	shared := s.kind == Imported || s.kind == viewed
	if n, taken := l.live[key]; taken {
		// An address that was handed out again had been freed, whatever the call said; but
		// one that is counted has the same memory.
		if b := l.blocks.at(n); shared && l.sites[b.site].kind == s.kind {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
		}
		return
	}
	if shared {
		last.block.extra = 0 // other threads have freed all of them
	}
	l.revive(key, last.block, time)
}

// revive brings an ended block back to life, and says whether it has room.
func (l *Ledger) revive(key liveKey, b block, time uint64) bool {
	s := &l.sites[b.site]
	if !l.room(tableLive, &l.procs[key.process]) {
		l.evict(s)
		return false
	}
	if s.kind != viewed {
		l.addLive(s, b.size, time)
		s.revived(l.options.Begin, b.time, b.size)
		l.segmentChanged(b.site, b.size, time, false)
	}
	if l.procs[key.process].purged {
		return false
	}
	if s.kind == Async && b.extra != 0 {
		if p := &l.pools[b.extra]; p.inUse && p.process == key.process {
			p.add(b.size)
		} else {
			b.extra = 0 // the pool was destroyed, and this was its last
		}
	}
	near := b.prev
	n := l.addBlock(key, &l.procs[key.process], b)
	l.link(n, near)
	if l.observer != nil && s.kind != viewed {
		l.observer.Allocated(l.allocation(n), time)
	}
	return true
}

// drop ends an allocation.
func (l *Ledger) drop(key liveKey, n uint32, time uint64) {
	b := l.blocks.at(n)
	site, size, extra, birth := b.site, b.size, b.extra, b.time
	s := &l.sites[site]
	if l.observer != nil && s.kind != viewed {
		l.observer.Freed(l.allocation(n), time)
	}
	l.unlink(n)
	l.dropBlock(key, n)
	if s.kind == viewed {
		return
	}
	if extra != 0 && s.kind == Async {
		l.leavePool(extra, size)
	}
	l.segmentChanged(site, size, time, true)
	if size == 0 {
		l.stats.UnknownSizes--
	}
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

func (l *Ledger) addLive(s *site, size, time uint64) {
	if size == 0 {
		l.stats.UnknownSizes++
	}
	s.liveObjects++
	s.liveBytes += size
	s.history.record(l.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &l.procs[s.process].totals[t]
		t.LiveObjects++
		t.LiveBytes += size
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
}

func (t *Total) peak(time uint64) {
	if t.LiveBytes > t.PeakBytes {
		t.PeakBytes, t.PeakTime = t.LiveBytes, time
	}
}

// grow gives a live block of unknown size, or of one that was too small, its size.
func (l *Ledger) grow(n uint32, size, time uint64) {
	b := l.blocks.at(n)
	s := &l.sites[b.site]
	p := &l.procs[s.process]
	if size <= b.size || size > maxSize || size-b.size > maxSum-p.totals[s.sum].AllocBytes {
		return
	}
	if b.size == 0 {
		l.stats.UnknownSizes--
	}
	more := size - b.size
	b.size = size
	s.allocBytes += more
	s.liveBytes += more
	s.history.record(l.options.Begin, time, s.liveBytes)
	s.grown(l.options.Begin, b.time, more)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.AllocBytes += more
		t.LiveBytes += more
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
}
