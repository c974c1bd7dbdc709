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
	if e.Kind == Internal && !l.isInternal(e) {
		return
	}
	if e.Size == 0 {
		if e.Space != Addresses {
			l.alias(e) // a multicast handle or a sparse array, which has no memory of its own
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
		b := l.entries.at(old)
		s := &l.sites[b.site]
		if s.kind == Imported && e.Kind == Imported && s.context == e.Context {
			b.extra = min(b.extra, math.MaxUint32-1) + 1
			return
		}
		if s.kind != aliased {
			l.reuse(s, b.size)
		}
		l.drop(key, old, e.Time)
	}
	l.book(key, e)
}

// book adds an allocation and returns the number of its entry; 0 if it has none.
func (l *Ledger) book(key liveKey, e *Event) uint32 {
	device, pool := l.deviceAndPool(key.process, e)
	kind := e.Kind
	if k := l.pools[pool].kind; k != 0 { // not memory of a GPU: such pools have no figures
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
		return 0 // a late event of a process that lost its entries
	}
	if pool != 0 {
		l.pools[pool].add(key.address, size)
	}
	b := l.addEntry(key, p, entry{address: key.address, size: size, time: e.Time, site: n, extra: pool})
	l.link(b, s.last)
	if device == UnknownDevice {
		l.addStray(key, e)
	}
	if l.observer != nil {
		l.observer.Allocated(l.allocation(b), e.Time)
	}
	return b
}

// evict counts an allocation that the process has no room for. No live figure includes it.
func (l *Ledger) evict(s *site) {
	l.stats.Evicted++
	s.evicted++
}

// addEntry makes an allocation live.
func (l *Ledger) addEntry(key liveKey, p *process, b entry) uint32 {
	n := l.entries.take(b)
	l.live[key] = n
	l.hold(tableLive, p)
	l.takeRoom(p, &b)
	return n
}

// dropEntry ends a live allocation that is in no list any more.
func (l *Ledger) dropEntry(key liveKey, n uint32) {
	if l.openWalks > 0 {
		l.noteFreed(key, n)
	}
	delete(l.live, key)
	l.entries.release(n)
	l.give(tableLive, &l.procs[key.process])
}

// deviceAndPool returns the device and the pool of an allocation.
func (l *Ledger) deviceAndPool(process uint32, e *Event) (device int32, pool uint32) {
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

// alias remembers an address that is not an allocation.
func (l *Ledger) alias(e *Event) {
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
		b := l.entries.at(old)
		s := &l.sites[b.site]
		if s.kind == aliased {
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
	device, _ := l.deviceAndPool(p, &Event{Device: e.Device, Context: e.Context})
	n := l.site(siteKey{context: e.Context, process: p, device: device, kind: aliased, space: e.Space})
	b := l.addEntry(key, &l.procs[p], entry{address: e.Address, time: e.Time, site: n})
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
		l.warnOf(e.PID, fmt.Sprintf("process %d has too many sites of failed allocations: the rest are shown without stacks", e.PID))
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

func (l *Ledger) addLive(s *site, size, time uint64) {
	p := &l.procs[s.process]
	if size == 0 {
		l.stats.UnknownSizes++
		if p.purged {
			p.unsized++
		}
	}
	p.keep(s)
	s.liveObjects++
	s.liveBytes += size
	s.history.record(l.options.Begin, time, s.liveBytes)
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

// grow makes a live entry of unknown or too small a size larger.
func (l *Ledger) grow(n uint32, size, time uint64) {
	b := l.entries.at(n)
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
	p.keep(s)
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
	p.reachedOn(&p.totals[s.total].Total, time)
}
