// SPDX-License-Identifier: Apache-2.0

package ledger

// Observer is told when memory begins and ends, in the order in which a Ledger books it. Its
// methods run inside Apply and Tell, and must not call the Ledger.
//
// The ledger does not report the memory that a process still has when it ends as freed. After Forget
// a new process can have the number of one that left the books; after Fold, memory can end without
// the stack that it began with.
type Observer interface {
	// Began reports a new process. The one that had its pid before has ended.
	Began(process, pid uint32)

	// Allocated reports that a is live from time on. A time later than a.Time means that it is live
	// again, since its free failed.
	Allocated(a Allocation, time uint64)

	// Freed reports that a is not live any more: it was freed, its context ended, or its address
	// was allocated again.
	Freed(a Allocation, time uint64)

	// Mapped reports that a range of addresses leads to physical memory from time on. A time later
	// than m.Time means that it does so again, since its unmapping failed.
	Mapped(m Mapping, time uint64)

	// Unmapped reports that the range does not lead there any more.
	Unmapped(m Mapping, time uint64)

	// Moved reports that the device of a live allocation became known.
	Moved(a Allocation)

	// Unmatched reports a free or an unmapping of memory that is not booked, for example because it
	// is older than the attach. Of a, only Process, PID, Space and Address are known, and of an
	// unmapping also Size.
	Unmatched(a Allocation, time uint64)
}

// Allocation is live memory as an Observer sees it: an allocation, or, of Kind Tensor, a block.
type Allocation struct {
	Process uint32 // a number: a pid has several processes, one after the other
	PID     uint32
	Device  int32 // CUDA ordinal or UnknownDevice; CPUDevice for blocks on the host
	Kind    Kind
	Space   Space
	Address uint64 // in Space; of Physical memory a number of its own instead of a handle
	Size    uint64 // bytes, 0 if unknown
	Time    uint64 // of its allocation, ns
	Stack   uint64 // 0 without one
	API     string
}

// Mapping is the range of addresses [Start, End), which leads to the physical memory Memory.
type Mapping struct {
	Memory     Allocation
	Start, End uint64
	Time       uint64 // of the mapping, ns
}

// Observe makes o the observer of the ledger; nil is none. It must be called before the first
// event.
func (l *Ledger) Observe(o Observer) { l.observer = o }

// allocation returns live block n as an Observer sees it.
func (p *heap) allocation(n uint32) Allocation {
	b := p.entries.at(n)
	s := p.sites[b.site]
	space := s.space
	if space == memories {
		space = Physical
	}
	return Allocation{
		Process: p.number, PID: p.PID, Device: s.device, Kind: s.kind, Space: space,
		Address: b.address, Size: b.size, Time: b.time, Stack: s.stack, API: s.api,
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
