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
	s.aged(p.options.Begin, e.Time, size)
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
	s.history.record(p.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.LiveObjects++
		t.LiveBytes += size
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}

func (t *Total) peak(time uint64) {
	if t.LiveBytes > t.PeakBytes {
		t.PeakBytes, t.PeakTime = t.LiveBytes, time
	}
}

// runningTotal is a Total with the lowest and highest LiveBytes since UsageOpened.
type runningTotal struct {
	Total
	low, high uint64
	rounding  rounding // without that of graphs
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
	s.history.record(p.options.Begin, time, s.liveBytes)
	s.grown(p.options.Begin, b.time, more)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.AllocBytes += more
		t.LiveBytes += more
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}
