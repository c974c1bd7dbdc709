// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"math"
)

func (p *driver) alloc(e *Event) {
	switch {
	case e.Kind == Tensor || e.Space == Blocks:
		p.allocTensor(e)
		p.tellTotals(e)
		return
	case e.Kind == Internal && !p.isInternal(e):
		return
	case e.Size == 0:
		p.alias(e) // a multicast handle or a sparse array, which has no memory of its own
		return
	case e.Space == Physical:
		p.allocPhysical(e)
		return
	}
	key := liveKey{e.Address, e.Space}
	if old, ok := p.live[key]; ok {
		b := p.entries.at(old)
		s := p.sites[b.site]
		if s.kind == Imported && e.Kind == Imported && s.context == e.Context {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
			return
		}
		if s.kind != aliased {
			p.reuse(s, b.size)
		}
		p.drop(key, old, e.Time)
	}
	p.book(key, e)
}

// book adds an allocation and returns the number of its entry; 0 if it has none.
func (p *driver) book(key liveKey, e *Event) uint32 {
	device, pool := p.deviceAndPool(e)
	kind := e.Kind
	if pool != 0 && p.pools[pool].kind != 0 { // not memory of a GPU: such pools have no figures
		kind, pool = p.pools[pool].kind, 0
	}
	s := p.site(siteKey{stack: e.Stack, context: e.Context, device: device, kind: kind, space: key.space, api: e.API})
	p.noteOwner(s.siteKey, e)
	size := e.Size
	if size > maxSize {
		size = p.sizeOf(e)
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
	if !p.room(tableLive) {
		p.evict(s)
		return 0
	}
	p.addLive(s, size, e.Time)
	s.track.Add(p.options.Begin, e.Time, size)
	p.segmentChanged(s, size, e.Time, false)
	if p.purged {
		return 0 // a late event of a process that lost its entries
	}
	if pool != 0 {
		p.pools[pool].add(key.address, size)
	}
	b := p.addEntry(key, entry{address: key.address, size: size, time: e.Time, site: s.number, extra: pool})
	p.link(b, s.last)
	if device == UnknownDevice {
		p.addStray(key, e)
	}
	if p.observer != nil {
		p.observer.Allocated(p.allocation(b), e.Time)
	}
	return b
}

// alias remembers an address that is not an allocation.
func (p *driver) alias(e *Event) {
	if p.purged || e.Address == 0 {
		return
	}
	key := liveKey{e.Address, e.Space}
	if e.Space == Physical {
		p.reuseHandle(e.Address, e.Time)
	}
	if old, ok := p.live[key]; ok {
		b := p.entries.at(old)
		s := p.sites[b.site]
		if s.kind == aliased {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
			return
		}
		p.reuse(s, b.size)
		p.drop(key, old, e.Time)
	}
	if !p.room(tableLive) {
		p.stats.Evicted++
		return
	}
	device, _ := p.deviceAndPool(&Event{Device: e.Device, Context: e.Context})
	s := p.site(siteKey{context: e.Context, device: device, kind: aliased, space: e.Space})
	b := p.addEntry(key, entry{address: e.Address, time: e.Time, site: s.number})
	p.link(b, s.last)
}

func (p *driver) allocFailed(e *Event) {
	device, size, kind := e.Device, e.Size, e.Kind
	if uint32(device) >= maxDevices {
		device = UnknownDevice
	}
	if n, ok := p.poolOf[keyOfPool(e.Handle, UnknownDevice)]; ok && e.Handle != 0 && e.Kind == Async {
		device, kind = p.pools[n].on(), cmp.Or(p.pools[n].kind, kind)
	}
	if size == UnknownSize {
		size = 0
	}
	key := failureKey{siteKey{stack: e.Stack, device: device, kind: kind, api: e.API}, e.Result}
	f := p.failures[key]
	var crowded uint64
	if f == nil && p.room(tableFailures) {
		p.hold(tableFailures)
	} else if f == nil {
		p.warnOf(fmt.Sprintf("process %d has too many sites of failed allocations: the rest are shown without stacks", e.PID))
		key.stack, crowded = 0, 1
		if f = p.failures[key]; f == nil && p.bareFailures >= maxBareFailures {
			key.result = resultUnknown
			f = p.failures[key]
		}
		if f == nil {
			p.bareFailures++
		}
	}
	if f == nil {
		f = &Failure{}
		if p.failures == nil {
			p.failures = make(map[failureKey]*Failure)
		}
		p.failures[key] = f
	}
	f.Crowded += crowded
	f.Count++
	f.Bytes += min(size, math.MaxUint64-f.Bytes)
	f.LastBytes, f.LastTime = size, e.Time
}

// deviceAndPool returns the device and the pool of an allocation.
func (p *contexts) deviceAndPool(e *Event) (device int32, pool uint32) {
	device = e.Device
	if uint32(device) >= maxDevices {
		device = UnknownDevice
		if e.Context != 0 {
			device = p.deviceOf(e.Context)
		}
	}
	if e.Kind == Async && e.Space == Addresses {
		return p.poolFor(e.Handle, device)
	}
	return device, 0
}

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
	} else if p.allocator.giveBack(&p.torch, e) {
		last.outcome = givenBack
		p.olderFreed = max(p.olderFreed, e.Time)
		p.tellUnmatched(e.Space, e)
	} else {
		p.unmatched(e.Space, e)
	}
	p.remember(e.TID, last)
}

// unmatched counts a free or an unmapping of memory that is not booked.
func (p *driver) unmatched(space Space, e *Event) {
	p.stats.UnmatchedFrees++
	p.olderFreed = max(p.olderFreed, e.Time)
	p.tellUnmatched(space, e)
}

func (p *driver) tellUnmatched(space Space, e *Event) {
	if p.observer != nil {
		p.observer.Unmatched(Allocation{Process: p.number, PID: p.PID, Space: space, Address: e.Address, Size: e.Size}, e.Time)
	}
}
