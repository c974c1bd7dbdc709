// SPDX-License-Identifier: Apache-2.0

package ledger

// undo has what the latest free of each thread of a process did, in case it failed.
type undo struct {
	lastFree map[uint32]lastFree // by thread id
	released map[uint32]released // more about frees of physical memory in lastFree
}

func (u *undo) withUndo() *undo {
	if u.lastFree == nil {
		u.lastFree, u.released = make(map[uint32]lastFree), make(map[uint32]released)
	}
	return u
}

// released is what the latest cuMemRelease or cuMemUnmap of a thread ended.
type released struct {
	handle uint64 // 0: mappings ended
	held   memoryOf
	ended  []endedMapping
}

// memoryOf is a memory as it was before.
type memoryOf struct {
	number uint64
	entry  entry
	learns bool
}

type endedMapping struct {
	mapping
	of memoryOf
}

// memoryOf returns what is needed to revive a memory.
func (p *driver) memoryOf(number uint64) memoryOf {
	m, ok := p.physical.memories[number]
	if !ok {
		return memoryOf{} // an alias
	}
	return memoryOf{number, *p.entries.at(p.live[liveKey{number, memories}]), m.learns}
}

func (p *driver) rememberPhysical(e *Event, r released) {
	p.forgetFree(e.TID)
	more := len(r.ended) - 1
	if len(r.ended) > 0 && !p.hasRoomFor(tableUnmapped, more) {
		p.forgetFrees()
		if !p.hasRoomFor(tableUnmapped, more) {
			p.beyond[tableUnmapped]++
			return
		}
	}
	p.remember(e.TID, lastFree{entry: entry{address: e.Address}, outcome: lessPhysical})
	if _, kept := p.lastFree[e.TID]; kept {
		p.released[e.TID] = r
		p.giveAll(tableUnmapped, -len(r.ended))
	}
}

// undoPhysical undoes the thread's last free, unless its handle or addresses were given out again:
// then the memory had been freed, whatever the call returned.
func (p *driver) undoPhysical(e *Event) {
	r := p.released[e.TID]
	p.forgetFree(e.TID)
	v := p.physical
	if v == nil {
		return
	}
	if r.handle != 0 {
		p.undoRelease(&r, e.Time)
		return
	}
	for _, x := range r.ended {
		if v.mappings.Overlaps(x.Start, x.End) || !p.mayMap() || !p.reviveMemory(&x.of, e.Time) {
			continue
		}
		v.mappings.Insert(x.mapping)
		p.asleep.cut(x.Start, x.End)
		if m, ok := v.memories[x.Value.memory]; ok {
			m.mappings++
			v.memories[x.Value.memory] = m
			p.tellMapped(&x.mapping, e.Time)
		}
	}
}

func (p *driver) undoRelease(r *released, time uint64) {
	v := p.physical
	h, taken := v.handles[r.handle]
	_, aliased := p.live[liveKey{r.handle, Physical}]
	switch {
	case aliased || taken && h.memory != r.held.number:
	case taken:
		h.references++
		v.handles[r.handle] = h
	case p.mayMap() && p.reviveMemory(&r.held, time):
		p.addHandle(r.handle, r.held.number)
	}
}

// reviveMemory revives a memory if it has ended, and reports whether it lives.
func (p *driver) reviveMemory(was *memoryOf, time uint64) bool {
	v := p.physical
	if _, ok := v.memories[was.number]; ok || was.number == 0 {
		return true
	}
	if !p.revive(liveKey{was.number, memories}, was.entry, time) {
		return false
	}
	v.memories[was.number] = memory{learns: was.learns}
	return true
}

// forgetNeighbors forgets where freed entries were in the lists of their sites.
func (u *undo) forgetNeighbors() {
	for tid, x := range u.lastFree {
		x.entry.prev, x.entry.next = 0, 0
		u.lastFree[tid] = x
	}
	for tid, r := range u.released {
		r.held.entry.prev, r.held.entry.next = 0, 0
		for i := range r.ended {
			r.ended[i].of.entry.prev, r.ended[i].of.entry.next = 0, 0
		}
		u.released[tid] = r
	}
}

// remember keeps the effect of a thread's latest free.
func (p *driver) remember(tid uint32, last lastFree) {
	if before, ok := p.lastFree[tid]; ok {
		if before.outcome != lessPhysical {
			p.lastFree[tid] = last
			return
		}
		p.forgetFree(tid)
	}
	if p.purged {
		return
	}
	if !p.hasRoomFor(tableFrees, 0) {
		if p.held[tableFrees] == 0 {
			p.beyond[tableFrees]++
			return
		}
		p.forgetFrees()
	}
	p.hold(tableFrees)
	p.withUndo().lastFree[tid] = last
}

// forgetFree drops the effect of a thread's latest free.
func (p *driver) forgetFree(tid uint32) {
	last, ok := p.lastFree[tid]
	if !ok {
		return
	}
	delete(p.lastFree, tid)
	p.give(tableFrees)
	if last.outcome == lessPhysical {
		p.giveAll(tableUnmapped, len(p.released[tid].ended))
		delete(p.released, tid)
	}
}

// forgetFrees drops the latest frees of all threads. Most have ended; at worst, some failed frees
// are not undone.
func (p *driver) forgetFrees() {
	for tid := range p.lastFree {
		p.forgetFree(tid)
	}
	p.lastFree, p.released = nil, nil
}

// freeFailed undoes the last free of the thread.
func (p *driver) freeFailed(e *Event) {
	last, ok := p.lastFree[e.TID]
	if !ok || e.Address != 0 && e.Address != last.entry.address {
		return
	}
	if last.outcome != lessPhysical {
		p.forgetFree(e.TID)
	}
	switch {
	case last.outcome == unmatched:
		p.stats.UnmatchedFrees--
		if last.entry.size != 0 { // an unmapping failed
			start, end := span(last.entry.address, last.entry.size)
			p.forgetAddresses(start, end)
		}
	case e.Result == resultDeinitialized:
	case last.outcome == givenBack:
		keepBack(p.tensors, last.entry.address)
	case last.outcome == lessPhysical:
		p.undoPhysical(e)
	case p.purged: // its site is archived
	default:
		p.restore(&last, e.Time)
	}
}

// renumberFrees changes the numbers of sites in what may be undone.
func (u *undo) renumberFrees(to func(n uint32) uint32) {
	for tid, x := range u.lastFree {
		if x.outcome == freed {
			x.entry.site = to(x.entry.site)
			u.lastFree[tid] = x
		}
	}
	for tid, r := range u.released {
		if r.held.number != 0 {
			r.held.entry.site = to(r.held.entry.site)
		}
		for i := range r.ended {
			if x := &r.ended[i]; x.of.number != 0 {
				x.of.entry.site = to(x.of.entry.site)
			}
		}
		u.released[tid] = r
	}
}

// driver has what calls of the driver report: allocations, virtual memory, exports.
type driver struct {
	contexts
	undo
	physical     *physical // nil without the virtual memory API
	failures     map[failureKey]*Failure
	bareFailures int                 // sites of failures beyond its share
	exported     []uint64            // its keys in session.exports, oldest first
	owners       map[siteKey][]owner // of what sites imported
}

// process has the books of one process. Its parts are layers, each of which embeds the one below
// and calls nothing above: heap, torch, gpuMap, poolSet, contexts, driver. A method stands in the
// lowest layer that has all it needs, and calls its process p.
type process struct {
	driver
	older      *process // the process that had the pid before, or nil
	oom        *OOM
	stacksLost uint64 // Stats.StacksBy
}
