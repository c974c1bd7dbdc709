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

// memory lives while it has handles or mappings. Its entry is in heap.live under its number.
type memory struct {
	handles, mappings uint32
	learns            bool // its size is unknown, and taken to be that of its largest mapping
}

// mayMap reports whether a process has room for one more handle or mapping.
func (p *driver) mayMap() bool {
	p.countMappings()
	if p.room(tableMappings) {
		return true
	}
	p.stats.Evicted++
	return false
}

// countMappings updates the count of handles and mappings that a process holds.
func (p *driver) countMappings() {
	n := 0
	if v := p.physical; v != nil {
		n = len(v.handles) + v.mappings.Len()
	}
	p.giveAll(tableMappings, int(p.held[tableMappings])-n)
}

// allocPhysical books memory with one reference, or one more reference if the process imports it
// again.
func (p *driver) allocPhysical(e *Event) {
	if e.Kind == Imported && p.importAgain(e) {
		return
	}
	p.reuseHandle(e.Address, e.Time)
	p.endAlias(e.Address, e.Time)
	if p.purged {
		p.book(liveKey{space: memories}, e)
		return
	}
	v := p.withPhysical()
	v.last++
	if b := p.book(liveKey{v.last, memories}, e); b != 0 {
		v.handles[e.Address] = handle{v.last, 1}
		v.memories[v.last] = memory{handles: 1, learns: p.entries.at(b).size == 0}
	}
}

// importAgain adds a reference to memory that the process has under the same handle, and reports
// whether there is any.
func (p *driver) importAgain(e *Event) bool {
	if v := p.physical; v != nil {
		if h, ok := v.handles[e.Address]; ok {
			h.references++
			v.handles[e.Address] = h
			return true
		}
	}
	if _, ok := p.live[liveKey{e.Address, Physical}]; ok {
		p.alias(e)
		return true
	}
	return false
}

func (p *driver) withPhysical() *physical {
	if p.physical == nil {
		p.physical = &physical{handles: make(map[uint64]handle), memories: make(map[uint64]memory)}
	}
	return p.physical
}

// endAlias ends an alias of physical memory, for example a multicast object.
func (p *driver) endAlias(number, time uint64) {
	key := liveKey{number, Physical}
	if n, ok := p.live[key]; ok {
		p.drop(key, n, time)
	}
}

// reuseHandle ends a handle whose number the driver gives out again: its last release was not seen.
func (p *driver) reuseHandle(number, time uint64) {
	v := p.physical
	if v == nil {
		return
	}
	if _, ok := v.handles[number]; ok {
		p.stats.Reused++
		p.endHandle(number, time)
	}
}

func (p *driver) endHandle(number, time uint64) {
	v := p.physical
	id := v.handles[number].memory
	delete(v.handles, number)
	m := v.memories[id]
	m.handles--
	v.memories[id] = m
	p.settle(id, time)
}

// settle ends memory without handles and mappings.
func (p *driver) settle(id, time uint64) {
	v := p.physical
	if m, ok := v.memories[id]; ok && m.handles == 0 && m.mappings == 0 {
		delete(v.memories, id)
		key := liveKey{id, memories}
		p.drop(key, p.live[key], time)
	}
}

func (p *driver) mapMemory(e *Event) {
	start, end := span(e.Address, e.Size)
	v := p.physical
	h, known := handle{}, false
	if v != nil {
		h, known = v.handles[e.Handle]
	}
	if !known {
		_, known = p.live[liveKey{e.Handle, Physical}]
	}
	if start == end || v == nil && !known {
		return
	}
	v = p.withPhysical()
	if v.mappings.Overlaps(start, end) {
		p.stats.Reused++
		p.endMappings(v.mappings.Cut(start, end), e.Time)
	}
	p.mapped(start, end, e.Time)
	if !known || !p.mayMap() {
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
		p.grow(p.live[liveKey{h.memory, memories}], e.Size, e.Time)
	}
	p.tellMapped(&x, e.Time)
}

func (p *driver) endMappings(list []mapping, time uint64) {
	v := p.physical
	for i := range list {
		id := list[i].Value.memory
		if m, ok := v.memories[id]; ok {
			p.tellUnmapped(&list[i], time)
			m.mappings--
			v.memories[id] = m
			p.settle(id, time)
		}
	}
}

func (p *driver) unmap(e *Event) {
	var list []mapping
	if v := p.physical; v != nil {
		start, end := span(e.Address, e.Size)
		list = v.mappings.CutInside(start, end)
	}
	if len(list) == 0 {
		p.unmatched(Addresses, e)
		p.unmappedOlder(e)
		p.remember(e.TID, lastFree{entry: entry{address: e.Address, size: e.Size}})
		return
	}
	ended := make([]endedMapping, len(list))
	for i, x := range list {
		ended[i] = endedMapping{x, p.memoryOf(x.Value.memory)}
		p.unmapped(&x, e.Time)
	}
	p.endMappings(list, e.Time)
	p.rememberPhysical(e, released{ended: ended})
}

// retain adds a reference to the memory that is mapped at an address.
func (p *driver) retain(e *Event) {
	v := p.physical
	if v == nil || e.Handle == 0 {
		return
	}
	x := v.mappings.At(e.Address)
	if x == nil {
		return
	}
	id := x.Value.memory
	if id == 0 {
		p.alias(&Event{PID: e.PID, Time: e.Time, Space: Physical, Address: e.Handle, Device: UnknownDevice})
		return
	}
	if h, ok := v.handles[e.Handle]; ok && h.memory == id {
		h.references++
		v.handles[e.Handle] = h
		return
	}
	p.reuseHandle(e.Handle, e.Time)
	p.endAlias(e.Handle, e.Time)
	if p.mayMap() {
		p.addHandle(e.Handle, id)
	}
}

func (p *driver) addHandle(number, id uint64) {
	v := p.physical
	v.handles[number] = handle{id, 1}
	m := v.memories[id]
	m.handles++
	v.memories[id] = m
}

// release removes one reference of a handle, and reports whether the handle is known.
func (p *driver) release(e *Event) bool {
	v := p.physical
	if v == nil {
		return false
	}
	h, ok := v.handles[e.Address]
	if !ok {
		return false
	}
	p.rememberPhysical(e, released{handle: e.Address, held: p.memoryOf(h.memory)})
	if h.references--; h.references == 0 {
		p.endHandle(e.Address, e.Time)
	} else {
		v.handles[e.Address] = h
	}
	return true
}

// unmapped remembers a mapping that ended, if it could be part of a segment.
func (p *driver) unmapped(x *mapping, time uint64) {
	b, ok := p.live[liveKey{x.Value.memory, memories}]
	if !ok {
		return
	}
	if site := p.sites[p.entries.at(b).site]; site.mayBeSegment() {
		p.sleep(sleeper{start: x.Start, end: x.End, time: time, device: site.device})
	}
}

// tellMapped reports a mapping. An alias of physical memory is not booked, and neither is its
// mapping.
func (p *driver) tellMapped(x *mapping, time uint64) {
	if m, ok := p.observedMapping(x); ok {
		p.observer.Mapped(m, time)
	}
}

// tellUnmapped reports the end of a mapping whose memory still lives.
func (p *driver) tellUnmapped(x *mapping, time uint64) {
	if m, ok := p.observedMapping(x); ok {
		p.observer.Unmapped(m, time)
	}
}

// observedMapping returns a mapping as an Observer sees it; false if none is to be told.
func (p *driver) observedMapping(x *mapping) (Mapping, bool) {
	if p.observer == nil {
		return Mapping{}, false
	}
	n, ok := p.live[liveKey{x.Value.memory, memories}]
	if !ok {
		return Mapping{}, false
	}
	return Mapping{Memory: p.allocation(n), Start: x.Start, End: x.End, Time: x.Value.time}, true
}

// lastMemory returns the latest number of physical memory.
func (p *driver) lastMemory() uint64 {
	if p.physical == nil {
		return 0
	}
	return p.physical.last
}
