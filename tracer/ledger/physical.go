// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/vramprof/vramprof/tracer/ledger/intervals"

// physical has the books of a process's virtual memory API.
type physical struct {
	handles  map[uint64]handle // by CUmemGenericAllocationHandle
	memories map[uint64]memory // by number
	last     uint64            // latest number of a memory; numbers are not reused
	mappings intervals.Set[target]
}

// handle is a name of physical memory while it has references.
type handle struct {
	memory     uint64
	references uint64
}

// memory lives while it has handles or mappings. Its entry is in Ledger.live under its number.
type memory struct {
	handles, mappings uint32
	learns            bool // its size is unknown, and taken to be that of its largest mapping
}

// mayMap reports whether a process has room for one more handle or mapping.
func (l *Ledger) mayMap(process uint32) bool {
	p := &l.procs[process]
	l.countMappings(p)
	if l.room(tableMappings, p) {
		return true
	}
	l.stats.Evicted++
	return false
}

// countMappings updates the count of handles and mappings that a process holds.
func (l *Ledger) countMappings(p *process) {
	n := 0
	if v := p.physical; v != nil {
		n = len(v.handles) + v.mappings.Len()
	}
	l.giveAll(tableMappings, p, int(p.held[tableMappings])-n)
}

// allocPhysical books memory with one reference, or one more reference if the process imports it
// again.
func (l *Ledger) allocPhysical(e *Event) {
	n := l.instance(e.PID, e.Time)
	p := &l.procs[n]
	if e.Kind == Imported && l.importAgain(n, e) {
		return
	}
	l.reuseHandle(n, e.Address, e.Time)
	l.endAlias(n, e.Address, e.Time)
	if p.purged {
		l.book(liveKey{process: n, space: memories}, e)
		return
	}
	v := p.withPhysical()
	v.last++
	if b := l.book(liveKey{v.last, n, memories}, e); b != 0 {
		v.handles[e.Address] = handle{v.last, 1}
		v.memories[v.last] = memory{handles: 1, learns: l.entries.at(b).size == 0}
	}
}

// importAgain adds a reference to memory that the process has under the same handle, and reports
// whether there is any.
func (l *Ledger) importAgain(process uint32, e *Event) bool {
	if v := l.procs[process].physical; v != nil {
		if h, ok := v.handles[e.Address]; ok {
			h.references++
			v.handles[e.Address] = h
			return true
		}
	}
	if _, ok := l.live[liveKey{e.Address, process, Physical}]; ok {
		l.alias(e)
		return true
	}
	return false
}

func (p *process) withPhysical() *physical {
	if p.physical == nil {
		p.physical = &physical{handles: make(map[uint64]handle), memories: make(map[uint64]memory)}
	}
	return p.physical
}

// endAlias ends an alias of physical memory, for example a multicast object.
func (l *Ledger) endAlias(process uint32, number, time uint64) {
	key := liveKey{number, process, Physical}
	if n, ok := l.live[key]; ok {
		l.drop(key, n, time)
	}
}

// reuseHandle ends a handle whose number the driver gives out again: its last release was not seen.
func (l *Ledger) reuseHandle(process uint32, number, time uint64) {
	v := l.procs[process].physical
	if v == nil {
		return
	}
	if _, ok := v.handles[number]; ok {
		l.stats.Reused++
		l.endHandle(process, number, time)
	}
}

func (l *Ledger) endHandle(process uint32, number, time uint64) {
	v := l.procs[process].physical
	id := v.handles[number].memory
	delete(v.handles, number)
	m := v.memories[id]
	m.handles--
	v.memories[id] = m
	l.settle(process, id, time)
}

// settle ends memory without handles and mappings.
func (l *Ledger) settle(process uint32, id, time uint64) {
	v := l.procs[process].physical
	if m, ok := v.memories[id]; ok && m.handles == 0 && m.mappings == 0 {
		delete(v.memories, id)
		key := liveKey{id, process, memories}
		l.drop(key, l.live[key], time)
	}
}

func (l *Ledger) mapMemory(e *Event) {
	p := l.instance(e.PID, e.Time)
	start, end := span(e.Address, e.Size)
	v := l.procs[p].physical
	h, known := handle{}, false
	if v != nil {
		h, known = v.handles[e.Handle]
	}
	if !known {
		_, known = l.live[liveKey{e.Handle, p, Physical}]
	}
	if start == end || v == nil && !known {
		return
	}
	v = l.procs[p].withPhysical()
	if v.mappings.Overlaps(start, end) {
		l.stats.Reused++
		l.endMappings(p, v.mappings.Cut(start, end), e.Time)
	}
	l.mapped(p, start, end, e.Time)
	if !known || !l.mayMap(p) {
		return
	}
	x := mapping{Start: start, End: end, Value: target{h.memory, e.Time}}
	v.mappings.Insert(x)
	if h.memory == 0 {
		return
	}
	m := v.memories[h.memory]
	m.mappings++
	v.memories[h.memory] = m
	if m.learns {
		l.grow(l.live[liveKey{h.memory, p, memories}], e.Size, e.Time)
	}
	l.tellMapped(p, &x, e.Time)
}

func (l *Ledger) endMappings(process uint32, list []mapping, time uint64) {
	v := l.procs[process].physical
	for i := range list {
		id := list[i].Value.memory
		if m, ok := v.memories[id]; ok {
			l.tellUnmapped(process, &list[i], time)
			m.mappings--
			v.memories[id] = m
			l.settle(process, id, time)
		}
	}
}

func (l *Ledger) unmap(e *Event) {
	if e.Address == 0 || e.Size == 0 {
		return
	}
	p := l.instance(e.PID, e.Time)
	var list []mapping
	if v := l.procs[p].physical; v != nil {
		start, end := span(e.Address, e.Size)
		list = v.mappings.CutInside(start, end)
	}
	if len(list) == 0 {
		l.unmatched(p, Addresses, e)
		l.unmappedOlder(p, e)
		l.remember(e.TID, lastFree{entry: entry{address: e.Address, size: e.Size}, process: p})
		return
	}
	ended := make([]endedMapping, len(list))
	for i, x := range list {
		ended[i] = endedMapping{x, l.memoryOf(p, x.Value.memory)}
		l.unmapped(p, &x, e.Time)
	}
	l.endMappings(p, list, e.Time)
	l.rememberPhysical(e, p, released{ended: ended})
}

// retain adds a reference to the memory that is mapped at an address.
func (l *Ledger) retain(e *Event) {
	p := l.instance(e.PID, e.Time)
	v := l.procs[p].physical
	if v == nil || e.Handle == 0 {
		return
	}
	x := v.mappings.At(e.Address)
	if x == nil {
		return
	}
	id := x.Value.memory
	if id == 0 {
		l.alias(&Event{PID: e.PID, Time: e.Time, Space: Physical, Address: e.Handle, Device: UnknownDevice})
		return
	}
	if h, ok := v.handles[e.Handle]; ok && h.memory == id {
		h.references++
		v.handles[e.Handle] = h
		return
	}
	l.reuseHandle(p, e.Handle, e.Time)
	l.endAlias(p, e.Handle, e.Time)
	if l.mayMap(p) {
		l.addHandle(p, e.Handle, id)
	}
}

func (l *Ledger) addHandle(process uint32, number, id uint64) {
	v := l.procs[process].physical
	v.handles[number] = handle{id, 1}
	m := v.memories[id]
	m.handles++
	v.memories[id] = m
}

// release removes one reference of a handle, and reports whether the handle is known.
func (l *Ledger) release(process uint32, e *Event) bool {
	v := l.procs[process].physical
	if v == nil {
		return false
	}
	h, ok := v.handles[e.Address]
	if !ok {
		return false
	}
	l.rememberPhysical(e, process, released{handle: e.Address, held: l.memoryOf(process, h.memory)})
	if h.references--; h.references == 0 {
		l.endHandle(process, e.Address, e.Time)
	} else {
		v.handles[e.Address] = h
	}
	return true
}
