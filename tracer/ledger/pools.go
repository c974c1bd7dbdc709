// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/chunks"
)

type pool struct {
	handle    uint64
	device    int32 // or UnknownDevice
	kind      Kind  // Pinned or Managed if its memory is not one GPU's; such a pool has no figures
	latest    int32 // device of the latest allocation, used if device is unknown
	objects   uint64
	used      uint64
	reserve   uint64
	threshold uint64
	chunks    chunks.Set
	destroyed bool
	created   uint64 // time; 0: it was not seen
	inUse     bool
}

// poolSet has the pools of a process.
type poolSet struct {
	gpuMap
	pools    []pool             // by number; 0 is none
	noPools  []uint32           // unused numbers
	poolOf   map[poolKey]uint32 // numbers of those that are not destroyed
	selected map[int32]uint64   // by device: handle of the current pool
	own      map[uint64]int32   // by handle: device whose default pool it is
	atEnd    []deviceLive       // what they held when the process's entries were purged
}

// pool returns the pool with a number, nil if there is none any more.
func (p *poolSet) pool(n uint32) *pool {
	if int(n) < len(p.pools) && p.pools[n].inUse {
		return &p.pools[n]
	}
	return nil
}

// ownPool returns the key of a pool: handle 0 and its device if it is the default pool of a device.
func (p *poolSet) ownPool(handle uint64, device int32) (uint64, int32) {
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
	x.chunks.Add(address, size)
}

// leavePool takes an allocation out of its pool.
func (p *poolSet) leavePool(n uint32, address, size uint64) {
	x := &p.pools[n]
	x.chunks.Remove(address, size)
	x.objects--
	x.used -= size
	if x.destroyed {
		x.reserve = x.used
		if x.objects == 0 {
			p.releasePool(n)
		}
	}
}

func (p *poolSet) releasePool(n uint32) {
	p.give(tablePools)
	p.pools[n] = pool{}
	p.noPools = append(p.noPools, n)
}

// poolFor returns the pool of an allocation with that handle, and the device of the pool.
func (p *poolSet) poolFor(handle uint64, device int32) (int32, uint32) {
	if handle == 0 {
		handle = p.selected[device]
	}
	handle, device = p.ownPool(handle, device)
	n := p.withPool(handle, device)
	if n == 0 {
		return device, 0
	}
	x := &p.pools[n]
	if x.device != UnknownDevice {
		device = x.device
	}
	x.latest = device
	return device, n
}

// withPool returns the number of a pool, which it adds if necessary; 0 if there is no room.
func (p *poolSet) withPool(handle uint64, device int32) uint32 {
	key := keyOfPool(handle, device)
	if n, ok := p.poolOf[key]; ok {
		return n
	}
	if p.purged {
		return 0
	}
	n := p.newPool()
	if n == 0 {
		p.warnOf(fmt.Sprintf("process %d has too many memory pools: allocations from the rest are shown without a pool", p.PID))
		return 0
	}
	x := &p.pools[n]
	x.handle, x.device, x.latest = handle, key.device, UnknownDevice
	p.namePool(key, n)
	return n
}

// newPool returns the number of a new pool, 0 if there is no room.
func (p *poolSet) newPool() (n uint32) {
	if !p.room(tablePools) {
		return 0
	}
	if last := len(p.noPools) - 1; last >= 0 {
		n, p.noPools = p.noPools[last], p.noPools[:last]
	} else {
		n = uint32(max(len(p.pools), 1))
		p.pools = append(p.pools, make([]pool, int(n)+1-len(p.pools))...)
	}
	p.hold(tablePools)
	p.pools[n] = pool{inUse: true}
	return n
}

func (p *poolSet) namePool(key poolKey, n uint32) {
	if p.poolOf == nil {
		p.poolOf = make(map[poolKey]uint32)
	}
	p.poolOf[key] = n
}

// usedPools returns the pools by number.
func (p *poolSet) usedPools() (list []*pool) {
	for n := range p.pools {
		if p.pools[n].inUse {
			list = append(list, &p.pools[n])
		}
	}
	return list
}

// poolKind returns the kind of a pool's memory if it is not one GPU's, otherwise 0.
func poolKind(e *Event) Kind {
	if e.Kind == Pinned || e.Kind == Managed {
		return e.Kind
	}
	return 0
}

// bookPool books an event of a pool.
func (p *poolSet) bookPool(e *Event) {
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
		p.selectPool(e, device)
		return
	}
	handle, device := p.ownPool(e.Handle, device)
	n, known := p.poolOf[keyOfPool(handle, device)]
	switch {
	case e.Op == PoolCreate || e.Op == PoolThreshold:
		if e.Op == PoolCreate && known && handle != 0 {
			if k := p.pools[n].kind; k != 0 && k == poolKind(e) {
				return // reported again
			}
			p.destroyPool(n) // another thread's report of its end is still to come
		}
		if n = p.withPool(handle, device); n == 0 {
			return
		}
		if x := &p.pools[n]; e.Op == PoolThreshold {
			x.threshold = e.Size
		} else {
			x.created, x.kind = e.Time, poolKind(e)
			if device != UnknownDevice {
				x.device = device
			}
		}
	case !known:
	case e.Op == PoolTrim:
		x := &p.pools[n]
		x.reserve = max(x.used, min(x.reserve, e.Size))
		x.chunks.Trim(e.Size, func(do func(address, size uint64)) { p.eachInPool(n, do) })
	case e.Op == PoolDestroy && handle != 0:
		if p.pools[n].created <= e.Time { // otherwise the handle names another pool by now
			p.destroyPool(n)
		}
	}
}

// selectPool notes which pool the allocations of a device take from. In a process that was seen
// from its begin and never selected one, the current pool is the default pool.
func (p *poolSet) selectPool(e *Event, device int32) {
	if p.selected == nil {
		p.selected = make(map[int32]uint64)
	}
	switch chosen, ok := p.selected[device]; {
	case e.Op == PoolSelect || ok && chosen != e.Handle:
	case ok || device == UnknownDevice:
		return
	case p.Begin > p.options.Begin:
		p.bookPool(&Event{Op: PoolOwn, PID: e.PID, Time: e.Time, Device: device, Handle: e.Handle})
		return
	}
	if _, known := p.selected[device]; known || len(p.selected) < maxDevices+1 {
		p.selected[device] = e.Handle
	}
}

// destroyPool ends a pool, except for its live allocations. Its number may soon name another one,
// and its device uses its default pool again.
func (p *poolSet) destroyPool(n uint32) {
	x := &p.pools[n]
	delete(p.poolOf, keyOfPool(x.handle, x.device))
	p.spend(len(p.selected))
	for device, handle := range p.selected {
		if handle == x.handle {
			delete(p.selected, device)
		}
	}
	x.destroyed, x.reserve = true, x.used
	if x.objects == 0 {
		p.releasePool(n)
	}
}

// forgetPools drops the pools of a process that has lost its entries.
func (p *poolSet) forgetPools() {
	p.selected, p.own = nil, nil
	if p.poolOf == nil {
		return // it had no pools
	}
	p.spend(len(p.pools))
	for n := range p.pools {
		if x := &p.pools[n]; x.inUse {
			p.releasePool(uint32(n))
		}
	}
	p.pools, p.noPools, p.poolOf = nil, nil, nil
}

// heldBy returns the least and the most that the driver holds for a pool.
func (p *poolSet) heldBy(x *pool) (least, most uint64) {
	if p.options.unrounded {
		return x.used, x.reserve
	}
	least = max(x.chunks.Live(), x.used)
	most = max(least, x.chunks.Most(), x.reserve/chunks.Size*chunks.Size)
	switch {
	case x.destroyed: // it gives back what it does not use
		most = least
	case x.threshold >= most: // it keeps that
		least = most
	}
	return least, most
}

// poolsHold appends what the driver holds for the pools of a process beyond what is used, by
// device: the rest of chunks that are in use, and at most all chunks that were.
func (p *poolSet) poolsHold(dst []deviceLive) []deviceLive {
	p.spend(len(p.pools))
	first := len(dst)
	for _, x := range p.usedPools() {
		least, most := p.heldBy(x)
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

// movePool moves an allocation from the default pool of the unknown device to that of the device.
func (p *poolSet) movePool(b *entry, device int32) {
	switch x := &p.pools[b.extra]; {
	case x.device != UnknownDevice:
		return
	case x.handle != 0:
		x.latest = device
		return
	}
	_, n := p.poolFor(0, device)
	if n == 0 {
		return
	}
	x := &p.pools[b.extra]
	x.objects--
	x.used -= b.size
	x.reserve -= b.size
	x.chunks.Remove(b.address, b.size)
	p.pools[n].add(b.address, b.size)
	b.extra = n
}
