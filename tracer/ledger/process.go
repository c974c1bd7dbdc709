// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

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
	p.allocator.drop(&p.torch)
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

// compact gives the memory of free places back if they are at least three of four.
func (p *process) compact() {
	if p.entries.used >= leastEntries && len(p.live) <= int(p.entries.used)/4 {
		p.moveEntries()
		p.forgetNeighbors()
	}
}

// outOfMemory notes an allocation that failed for good.
func (p *process) outOfMemory(e *Event) {
	count := uint64(1)
	if p.oom != nil {
		count += p.oom.Count
	}
	p.stats.OutOfMemory++
	p.oom = &OOM{Time: e.Time, Bytes: e.Size, Stack: e.Stack, API: e.API, Kind: e.Kind, Device: e.Device, Count: count}
}
