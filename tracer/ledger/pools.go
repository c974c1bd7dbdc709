// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
)

// maxPools bounds the pools of all processes together.
const maxPools = 1 << 16

type pool struct {
	handle    uint64
	process   uint32
	device    int32 // or UnknownDevice
	kind      Kind  // Pinned or Managed if its memory is not one GPU's; such a pool has no figures
	latest    int32 // device of the latest allocation, used if device is unknown
	objects   uint64
	used      uint64
	reserve   uint64
	threshold uint64
	chunks    chunks
	destroyed bool
	created   uint64 // time; 0: before its first use
	inUse     bool
}

// ownPool returns the key of a pool: handle 0 and its device if it is the default pool of a device.
func (p *process) ownPool(handle uint64, device int32) (uint64, int32) {
	if d, ok := p.own[handle]; ok {
		return 0, d
	}
	return handle, device
}

// poolKey names a pool of a process by its handle, or, with handle 0, the default pool of a device.
type poolKey struct {
	handle uint64
	device int32
}

func keyOfPool(handle uint64, device int32) poolKey {
	if handle != 0 {
		device = UnknownDevice
	}
	return poolKey{handle, device}
}

func (x *pool) add(address, size uint64) {
	x.objects++
	x.used += size
	x.reserve = max(x.reserve, x.used)
	x.chunks.add(address, size)
}

// leavePool takes an allocation out of its pool.
func (l *Ledger) leavePool(n uint32, address, size uint64) {
	x := &l.pools[n]
	x.chunks.remove(address, size)
	x.objects--
	x.used -= size
	if x.destroyed {
		x.reserve = x.used
		if x.objects == 0 {
			l.releasePool(n)
		}
	}
}

func (l *Ledger) releasePool(n uint32) {
	l.give(tablePools, &l.procs[l.pools[n].process])
	l.pools[n] = pool{}
	l.noPools = append(l.noPools, n)
}

// poolFor returns the pool of an allocation with that handle, and the device of the pool.
func (l *Ledger) poolFor(process uint32, handle uint64, device int32) (int32, uint32) {
	p := &l.procs[process]
	if handle == 0 {
		handle = p.selected[device]
	}
	handle, device = p.ownPool(handle, device)
	n := l.withPool(process, handle, device)
	if n == 0 {
		return device, 0
	}
	x := &l.pools[n]
	if x.device != UnknownDevice {
		device = x.device
	}
	x.latest = device
	return device, n
}

// withPool returns the number of a pool, which it adds if necessary; 0 if there is no room.
func (l *Ledger) withPool(process uint32, handle uint64, device int32) uint32 {
	p := &l.procs[process]
	key := keyOfPool(handle, device)
	if n, ok := p.pools[key]; ok {
		return n
	}
	if p.purged {
		return 0
	}
	n := uint32(len(l.pools))
	switch {
	case !l.room(tablePools, p):
		l.warnOf(p.PID, fmt.Sprintf("process %d has too many memory pools: allocations from the rest are shown without a pool", p.PID))
		return 0
	case len(l.noPools) > 0:
		n = l.noPools[len(l.noPools)-1]
		l.noPools = l.noPools[:len(l.noPools)-1]
	default:
		l.pools = append(l.pools, pool{})
	}
	l.hold(tablePools, p)
	l.pools[n] = pool{handle: handle, process: process, device: key.device, latest: UnknownDevice, inUse: true}
	if p.pools == nil {
		p.pools = make(map[poolKey]uint32)
	}
	p.pools[key] = n
	return n
}

// poolKind returns the kind of a pool's memory if it is not one GPU's, otherwise 0.
func poolKind(e *Event) Kind {
	if e.Kind == Pinned || e.Kind == Managed {
		return e.Kind
	}
	return 0
}

// bookPool books an event of a bookPool.
func (l *Ledger) bookPool(e *Event) {
	process := l.instance(e.PID, e.Time)
	p := &l.procs[process]
	device := e.Device
	if uint32(device) >= maxDevices {
		device = UnknownDevice
	}
	if e.Op == PoolOwn {
		if device != UnknownDevice && e.Handle != 0 && len(p.own) < maxDevices {
			if p.own == nil {
				p.own = make(map[uint64]int32)
			}
			p.own[e.Handle] = device
		}
		return
	}
	if e.Op == PoolSelect || e.Op == PoolCurrent {
		l.selectPool(p, e, device)
		return
	}
	handle, device := p.ownPool(e.Handle, device)
	n, known := p.pools[keyOfPool(handle, device)]
	switch {
	case e.Op == PoolCreate || e.Op == PoolThreshold:
		if e.Op == PoolCreate && known && handle != 0 {
			if k := l.pools[n].kind; k != 0 && k == poolKind(e) {
				return // reported again
			}
			l.destroyPool(p, n) // another thread's report of its end is still to come
		}
		if n = l.withPool(process, handle, device); n == 0 {
			return
		}
		if x := &l.pools[n]; e.Op == PoolThreshold {
			x.threshold = e.Size
		} else {
			x.created, x.kind = e.Time, poolKind(e)
			if device != UnknownDevice {
				x.device = device
			}
		}
	case !known:
	case e.Op == PoolTrim:
		x := &l.pools[n]
		x.reserve = max(x.used, min(x.reserve, e.Size))
		x.chunks.trim(e.Size, func(do func(address, size uint64)) { l.eachInPool(p, n, do) })
	case e.Op == PoolDestroy && handle != 0:
		if l.pools[n].created <= e.Time { // otherwise the handle names another pool by now
			l.destroyPool(p, n)
		}
	}
}

// selectPool notes which pool the allocations of a device take from. In a process that was seen
// from its begin and never selected one, the current pool is the default pool.
func (l *Ledger) selectPool(p *process, e *Event, device int32) {
	if p.selected == nil {
		p.selected = make(map[int32]uint64)
	}
	switch chosen, ok := p.selected[device]; {
	case e.Op == PoolSelect || ok && chosen != e.Handle:
	case ok || device == UnknownDevice:
		return
	case p.Begin > l.options.Begin:
		l.bookPool(&Event{Op: PoolOwn, PID: e.PID, Time: e.Time, Device: device, Handle: e.Handle})
		return
	}
	if _, known := p.selected[device]; known || len(p.selected) < maxDevices+1 {
		p.selected[device] = e.Handle
	}
}

// destroyPool ends a pool, except for its live allocations. Its number may soon name another one,
// and its device uses its default pool again.
func (l *Ledger) destroyPool(p *process, n uint32) {
	x := &l.pools[n]
	delete(p.pools, keyOfPool(x.handle, x.device))
	l.spend(len(p.selected))
	for device, handle := range p.selected {
		if handle == x.handle {
			delete(p.selected, device)
		}
	}
	x.destroyed, x.reserve = true, x.used
	if x.objects == 0 {
		l.releasePool(n)
	}
}

// forgetPools drops the pools of a process that has lost its entries.
func (l *Ledger) forgetPools(process uint32) {
	p := &l.procs[process]
	p.selected, p.own = nil, nil
	if p.pools == nil {
		return // it had no pools
	}
	l.spend(len(l.pools))
	for n := range l.pools {
		if x := &l.pools[n]; x.inUse && x.process == process {
			l.releasePool(uint32(n))
		}
	}
	p.pools = nil
}

// eachInPool calls do with what lives in a pool.
func (l *Ledger) eachInPool(p *process, n uint32, do func(address, size uint64)) {
	for _, number := range p.sites {
		s := &l.sites[number]
		if s.kind != Async {
			continue
		}
		for k := s.first; k != 0; k = l.entries.at(k).next {
			if b := l.entries.at(k); b.extra == n && b.size > 0 {
				do(b.address, b.size)
			}
			l.spend(1)
		}
	}
	l.spend(len(p.sites))
}

// held returns the least and the most that the driver holds for a pool.
func (l *Ledger) held(x *pool) (least, most uint64) {
	if l.options.unrounded {
		return x.used, x.reserve
	}
	least = max(x.chunks.live*poolChunk, x.used)
	most = max(least, x.chunks.most(), x.reserve/poolChunk*poolChunk)
	switch {
	case x.destroyed: // it gives back what it does not use
		most = least
	case x.threshold >= most: // it keeps that
		least = most
	}
	return least, most
}

// poolsHold appends what the driver holds for the pools of a process beyond what is used, by device:
// the rest of chunks that are in use, and at most all chunks that were.
func (l *Ledger) poolsHold(p *process, dst []deviceLive) []deviceLive {
	l.spend(len(p.pools))
	first := len(dst)
	for _, n := range p.pools {
		x := &l.pools[n]
		least, most := l.held(x)
		hold := rounding{known: int64(least - x.used), most: most - least}
		if hold == (rounding{}) {
			continue
		}
		at := slices.IndexFunc(dst[first:], func(d deviceLive) bool { return d.device == x.on() })
		if at < 0 {
			at = len(dst) - first
			dst = append(dst, deviceLive{device: x.on()})
		}
		dst[first+at].rounding.add(hold)
	}
	return dst
}

// on returns the device of a pool, as far as it is known.
func (x *pool) on() int32 {
	if x.device == UnknownDevice {
		return x.latest
	}
	return x.device
}
