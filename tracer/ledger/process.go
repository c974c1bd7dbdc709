// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
)

const (
	// allDevices is the device of a total over all devices of a process.
	allDevices = math.MinInt32

	// Events of an ended process may be delayed by this, ns.
	grace = 5e9

	// Shortest time between two purges, ns.
	purgeStep = 1e9
)

// process has the books of one process. Its parts are layers, each of which embeds the one below and
// calls nothing above: heap, torch, gpuMap, poolSet, contexts, driver. A method stands in the lowest
// layer that has all it needs, and calls its process p.
type process struct {
	driver
	older      *process // the process that had the pid before, or nil
	oom        *OOM
	stacksLost uint64 // Stats.StacksBy
}

// driver has what the calls of the driver told: allocations, virtual memory, exports.
type driver struct {
	contexts
	undo
	physical     *physical // nil without the virtual memory API
	failures     map[failureKey]*Failure
	bareFailures int                 // sites of failures beyond its share
	exported     []uint64            // its keys in session.exports, oldest first
	owners       map[siteKey][]owner // of what sites imported
}

// apply books an event of the process.
func (p *process) apply(e *Event) {
	if e.Kind.IsObject() {
		p.applyObject(e)
		return
	}
	switch e.Op {
	case Alloc:
		p.alloc(e)
	case Free:
		p.free(e)
	case AllocFailed:
		p.allocFailed(e)
	default:
		p.applyRare(e)
	}
}

func (p *process) applyRare(e *Event) {
	switch e.Op {
	case Alias:
		p.alias(e)
	case Map:
		p.mapMemory(e)
	case Unmap:
		p.unmap(e)
	case Retain:
		p.retain(e)
	case Export:
		p.export(e)
	case ContextDerive:
		p.contextDerive(e)
	case ContextRetain:
		p.contextRetain(e)
	case ContextRelease:
		p.contextRelease(e)
	case ContextReset:
		p.contextReset(e)
	case ContextDestroy:
		p.contextDestroy(e)
	case PoolCreate, PoolDestroy, PoolTrim, PoolThreshold, PoolOwn, PoolSelect, PoolCurrent:
		p.bookPool(e)
	case Allocator:
		p.bookAllocator(e)
	case Totals:
		p.tellTotals(e)
	case AddressFree:
		p.addressFree(e)
	}
}

// isVoid reports whether an event changes nothing in any books, so that it is no sign of a process.
func (e *Event) isVoid() bool {
	if e.Kind.IsObject() {
		return e.Op != ObjectCreate && e.Op != ObjectEnd && e.Op != GreenCreate && e.Op != GreenDestroy
	}
	switch e.Op {
	case Alloc:
		switch {
		case e.Kind == Tensor || e.Space == Blocks:
			return !e.isBlock() && !e.hasTotals()
		case e.Address == 0:
			return true // cudaMalloc(0) succeeds with a null pointer
		}
		return e.Size == 0 && e.Space == Addresses
	case Free:
		return e.Address == 0
	case Alias:
		return e.Address == 0 || e.Space == Blocks
	case Unmap:
		return e.Address == 0 || e.Size == 0
	case ContextDestroy:
		return e.Context == 0
	case Totals:
		return !e.hasTotals()
	case AllocFailed, Map, Retain, Export, ContextDerive, ContextRetain, ContextRelease, ContextReset,
		PoolCreate, PoolDestroy, PoolTrim, PoolThreshold, PoolOwn, PoolSelect, PoolCurrent, Allocator, AddressFree:
		return false
	}
	return true
}

// end ends the process, and leaves its live allocations as they are.
func (p *process) end(time uint64, replaced bool) {
	p.End, p.Replaced = max(time, p.Begin, 1), replaced
}

// purgeTime returns when the entries of an ended process are dropped.
func (p *process) purgeTime() uint64 {
	if p.End > math.MaxUint64-grace {
		return math.MaxUint64
	}
	return p.End + grace
}

// purge drops the entries of a process that ended a while ago, and what only events need.
func (p *process) purge() {
	p.purged = true
	for s := range p.all() {
		p.unsized += p.purgeSite(s)
	}
	p.forgetFrees()
	p.live, p.entries = nil, entries{}
	p.setStrays(nil)
	p.physical, p.primaries, p.pages, p.clients = nil, nil, nil, nil
	p.atEnd = p.poolsHold(nil)
	p.dropList()
	p.dropHeldBlocks()
	p.dropOpenWalk()
	p.countMappings()
	p.asleep.compact(&p.torch)
	p.objects.forget()
	p.countObjects()
	p.archiveSites()
	p.forgetPools()
	p.spend(len(p.exported))
	p.forgetExports(len(p.exported))
}

// purgeSite drops the entries of a site, and returns how many of them have an unknown size.
func (p *heap) purgeSite(s *site) (unsized uint64) {
	if s.first != 0 {
		s.oldest = p.entries.at(s.first).time
	}
	for n := s.first; n != 0; {
		b := p.entries.at(n)
		next := b.next
		if b.size == 0 && s.kind != aliased {
			unsized++
		}
		p.dropEntry(liveKey{b.address, s.space}, n)
		n = next
	}
	s.first, s.last = 0, 0
	return unsized
}

// leave gives back what the process holds of all tables: it leaves the books.
func (p *process) leave() {
	p.spend(64*len(p.sites) + len(p.archived) + len(p.tensors))
	p.limiter.tensors -= uint64(len(p.tensors))
	p.limiter.sites -= uint64(len(p.sites)-len(p.unused)) + uint64(p.dropArchived())
	for s := range p.all() { // of late events
		p.stats.Reused += s.early.objects
		p.dropSite(s)
	}
	p.stats.UnknownSizes -= p.unsized
	for t, held := range p.held {
		p.giveAll(table(t), int(held))
	}
	p.older = nil
}

// onlyGPU returns the GPU that alone carries the process, or UnknownDevice and "" if there are
// several or none is known. The ordinal alone can be unknown.
func (p *gpuMap) onlyGPU(uuids []string) (ordinal int32, uuid string) {
	switch {
	case len(uuids) == 1:
		ordinal, uuid = 0, uuids[0]
	case len(p.readings) == 1:
		uuid = p.readings[0].uuid
		ordinal = ordinalOf(uuids, uuid)
	default:
		return UnknownDevice, ""
	}
	for i := range p.totals {
		t := &p.totals[i]
		if t.Device >= 0 && t.Device != ordinal && !t.Kind.OnHost() && ordinal != UnknownDevice {
			return UnknownDevice, "" // its calls use another device
		}
	}
	for i := range p.tensors {
		if d := p.tensors[i].device; d >= 0 && d != ordinal && ordinal != UnknownDevice {
			return UnknownDevice, ""
		}
	}
	return ordinal, uuid
}

func ordinalOf(uuids []string, uuid string) int32 { return int32(slices.Index(uuids, uuid)) }
