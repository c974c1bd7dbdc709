// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// AllocatorReading has the state of PyTorch's allocators of a process as it was read from outside.
// Its blocks are marked as older where no event gave them out. It belongs to the ledger afterwards,
// and must not change.
type AllocatorReading struct {
	PID  uint32
	Time uint64
	*caching.Reading
}

func (in AllocatorReading) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil && !p.purged && p.End == 0 && !l.full() {
		before := p.allocator
		p.setAllocator(in.Time, in.Reading, p.Lost > 0)
		if p.allocator != nil {
			extents := p.extents()
			p.setFirsts(extents)
			if p.allocator.reading.Sure() {
				p.repairSegments(before, extents)
			}
		}
	}
}

// AllocatorCache is what one of PyTorch's allocators had at a time, as it was read from outside.
type AllocatorCache struct {
	Process int
	Time    uint64 // of the reading
	caching.Device
	caching.Cache
	// Of the process: what readings showed to be allocated or freed although its event was lost.
	Repaired, RepairedBytes uint64
	Origins                 []PoolOrigin // of the process's private pools, as far as they were seen
}

// allocator is the latest reading of PyTorch's allocators of a process.
type allocator struct {
	time     uint64
	reading  *caching.Reading
	gone     []uint64        // addresses of the sample that this reading lacks: see repair
	divided  []caching.Cache // of the reading, by device
	repairs  count           // allocations and frees whose event was lost, since the begin of the process
	firsts   []allocatorFirst
	segments // that the books lack
}

// allocatorFirst is what readings alone show of an allocator that has reported nothing since the
// attach.
type allocatorFirst struct {
	device int32
	time   uint64 // of the reading that the books have its totals from
	silent bool   // it changed without a report: it is not traced, and the books have no totals
}

// segments are the addresses of segments in a reading that the books lack, sorted. Expandable ones
// are left out.
type segments struct {
	older    []uint64 // those of the first sure reading: they are from before the attach, as the process is
	unbooked []uint64 // those of this reading
	read     bool     // there was a sure reading
}

// repairSegments books the segments whose cudaMalloc was lost, and frees those whose cudaFree was:
// if events of the process were lost, and two sure readings agree.
func (p *process) repairSegments(before *allocator, extents []extent) {
	a := p.allocator
	a.unbooked = a.without(extents)
	a.read = true
	if before == nil || !before.read {
		if p.Begin <= p.options.Begin {
			a.older = a.unbooked
		}
		return
	}
	a.older = before.older
	if p.Lost == 0 || !before.reading.Sure() {
		return
	}
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		_, now := slices.BinarySearch(a.unbooked, s.Address)
		_, then := slices.BinarySearch(before.unbooked, s.Address)
		if _, older := slices.BinarySearch(a.older, s.Address); now && then && !older {
			p.alloc(&Event{Op: Alloc, Kind: Device, Space: Addresses, PID: p.PID, Device: a.reading.Arenas[s.Arena].Device, Time: a.time, Address: s.Address, Size: s.Size, API: "cudaMalloc"})
			a.repaired(s.Size)
		}
	}
	for _, x := range extents {
		key := liveKey{x.start, Addresses}
		if n, live := p.live[key]; live && !x.mapped && p.sites[x.site].segment && x.time < before.time && !a.overlaps(&x) && !before.overlaps(&x) {
			p.drop(key, n, a.time)
			a.repaired(x.end - x.start)
		}
	}
}

// reservedAfter returns what the allocator of a device had reserved at a sure reading after a time,
// and when that was. It is asked for only where events were lost: segments that came or went after
// the latest report are then in no change. a may be nil.
func (a *allocator) reservedAfter(device int32, time uint64) (bytes, at uint64, ok bool) {
	if a == nil || a.repairs.objects == 0 || a.time <= time || !a.reading.Sure() {
		return 0, 0, false
	}
	for i := range a.reading.Devices {
		if d := &a.reading.Devices[i]; d.Index == device {
			return min(d.Counters.Reserved.Current, maxTensors), a.time, true
		}
	}
	return 0, 0, false
}

func (a *allocator) repaired(bytes uint64) {
	a.repairs.objects++
	a.repairs.bytes += bytes
}

// without returns the addresses of the segments that overlap no extent.
func (a *allocator) without(extents []extent) (list []uint64) {
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		for len(extents) > 0 && extents[0].end <= s.Address {
			extents = extents[1:]
		}
		if s.Base == 0 && (len(extents) == 0 || extents[0].start >= s.Address+s.Size) {
			list = append(list, s.Address)
		}
	}
	return list
}

// overlaps reports whether a segment of the reading has an address of an extent.
func (a *allocator) overlaps(x *extent) bool {
	i, _ := slices.BinarySearchFunc(a.reading.Segments, x.start, func(s caching.Segment, address uint64) int {
		return cmp.Compare(s.Address+s.Size-1, address)
	})
	return i < len(a.reading.Segments) && a.reading.Segments[i].Address < x.end
}

// setAllocator books a reading of the allocators. lossy reports whether events of the process were
// lost.
func (p *torch) setAllocator(time uint64, r *caching.Reading, lossy bool) {
	p.spend(64 * (len(r.Blocks) + len(r.Segments)))
	before := p.allocator
	if before == nil {
		before = &allocator{}
	}
	p.allocator.drop(p)
	if p.listedBlocks+len(r.Blocks) > maxListed {
		return
	}
	p.listedBlocks += len(r.Blocks)
	p.allocator = &allocator{time: time, reading: r, divided: r.Divide(), repairs: before.repairs, firsts: before.firsts, segments: segments{older: before.older, read: before.read}}
	if r.Sure() {
		p.allocator.repair(p, before)
		if lossy && before.reading != nil && before.reading.Sure() {
			p.allocator.repairLost(p, before)
		}
		if p.walks != nil {
			p.walks.olderLeft(p.allocator)
		}
	}
}

// drop drops the reading of a process. a may be nil.
func (a *allocator) drop(p *torch) {
	if a != nil {
		p.listedBlocks -= len(a.reading.Blocks)
		p.allocator = nil
	}
}

// setFirsts books what the allocators have that have reported nothing since the attach, if all of
// it is older. If one changes without a report, it is not traced, and the books have no totals of
// it.
func (p *process) setFirsts(extents []extent) {
	a := p.allocator
	for i := range a.reading.Devices {
		d := &a.reading.Devices[i]
		if !d.Exact || d.Index >= maxDevices || d.Counters.Reserved.Current == 0 {
			continue
		}
		known := slices.IndexFunc(p.tensors, func(t tensors) bool { return t.device == d.Index })
		allocated, reserved := min(d.Counters.Allocated.Current, maxTensors), min(d.Counters.Reserved.Current, maxTensors)
		older := a.isOlder(d.Index, extents)
		k := slices.IndexFunc(a.firsts, func(f allocatorFirst) bool { return f.device == d.Index })
		switch {
		case k >= 0:
			f, t := &a.firsts[k], &p.tensors[p.tensorsOn(d.Index)]
			left := p.reserved(t, func(device int32) bool { return device == t.device })
			if !f.silent && t.now.time == f.time && !t.reading.taken && (!older || t.now.allocated != allocated || left != reserved) {
				f.silent, t.first, t.now, t.peak, t.returned = true, firstReport{}, toldTotals{}, highest{}, nil
			}
		case older && (known < 0 || !p.tensors[known].first.seen && !p.tensors[known].now.known):
			t := &p.tensors[p.tensorsOn(d.Index)]
			a.firsts = append(slices.Clip(a.firsts), allocatorFirst{device: d.Index, time: a.time})
			t.first = firstReport{time: a.time, allocated: allocated, reserved: reserved, driver: p.driverLive(t.device), seen: true}
			p.tell(t, &Event{Time: a.time, Told: ToldAllocated | ToldLive, Allocated: allocated, Reserved: reserved})
			t.now.begun, t.now.liveKnown = true, false
		}
	}
}

// isOlder reports whether no segment of a device overlaps what was allocated since the attach.
func (a *allocator) isOlder(device int32, extents []extent) bool {
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		for len(extents) > 0 && extents[0].end <= s.Address {
			extents = extents[1:]
		}
		if a.reading.Arenas[s.Arena].Device == device && len(extents) > 0 && extents[0].start < s.Address+s.Size {
			return false
		}
	}
	return true
}

// repair ends blocks of the sample that two sure readings lack, or have with another size, and that
// were allocated before the first: their free was lost. One reading is not enough, since an
// allocator changes before it reports.
func (a *allocator) repair(p *torch, before *allocator) {
	lacks := func(b *entry) bool {
		i, ok := a.at(b.address)
		if !ok {
			return true
		}
		x := &a.reading.Blocks[i]
		return x.State != caching.Active || x.Sampled && x.Size != b.size
	}
	var twice []uint64
	for s := range p.all() {
		if s.kind != Tensor || s.device < 0 {
			continue
		}
		for e := s.first; e != 0; {
			b := p.entries.at(e)
			e = b.next
			if b.time >= a.time || !lacks(b) {
				continue
			}
			if len(a.gone) < maxFreed {
				a.gone = append(a.gone, b.address)
			}
			if _, was := slices.BinarySearch(before.gone, b.address); was && b.time < before.time {
				twice = append(twice, b.address)
			}
		}
	}
	slices.Sort(a.gone)
	slices.Sort(twice)
	for _, address := range twice {
		key := liveKey{address, Blocks}
		n := p.live[key]
		a.repaired(p.entries.at(n).size)
		p.dropTensor(key, n, a.time)
	}
}

// repairLost books the blocks that had an event of their own, in two sure readings, but are not in
// the books: the event was lost. Their stack is unknown.
func (a *allocator) repairLost(p *torch, before *allocator) {
	for i := range a.reading.Blocks {
		b := &a.reading.Blocks[i]
		if b.State != caching.Active || !b.Sampled {
			continue
		}
		if _, live := p.live[liveKey{b.Address, Blocks}]; live {
			continue
		}
		if k, was := before.at(b.Address); was && before.reading.Blocks[k].Sampled && before.reading.Blocks[k].Size == b.Size {
			p.allocTensor(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, Device: a.reading.Arenas[b.Arena].Device, Time: before.time, Address: b.Address, Size: b.Size, API: "torch"})
			a.repaired(b.Size)
		}
	}
}

// at returns the index of the block at an address.
func (a *allocator) at(address uint64) (int, bool) {
	return slices.BinarySearchFunc(a.reading.Blocks, address, func(b caching.Block, address uint64) int {
		return cmp.Compare(b.Address, address)
	})
}

// olderAt returns the size of the block from before the attach at an address; 0: the latest reading
// has none. a may be nil.
func (a *allocator) olderAt(address uint64) uint64 {
	if a == nil {
		return 0
	}
	if i, ok := a.at(address); ok && a.reading.Blocks[i].Older && a.reading.Blocks[i].State != caching.Inactive {
		return a.reading.Blocks[i].Size
	}
	return 0
}

// segmentAt returns the size of the segment at an address in the latest reading, and its device; 0:
// the reading has none, or may not be of one moment. a may be nil.
func (a *allocator) segmentAt(address uint64) (bytes uint64, device int32) {
	if a == nil || !a.reading.Sure() {
		return 0, 0
	}
	i, ok := slices.BinarySearchFunc(a.reading.Segments, address, func(s caching.Segment, address uint64) int {
		return cmp.Compare(s.Address, address)
	})
	if !ok || a.reading.Segments[i].Base != 0 {
		return 0, 0
	}
	s := &a.reading.Segments[i]
	return s.Size, a.reading.Arenas[s.Arena].Device
}

// largestFree returns the longest run of free bytes of a device, 0 if it was not read. a may be
// nil.
func (a *allocator) largestFree(device int32) uint64 {
	if a == nil {
		return 0
	}
	for i := range a.divided {
		if a.reading.Devices[i].Index == device {
			return a.divided[i].LargestFree
		}
	}
	return 0
}

// caches adds what was read of PyTorch's allocators to a snapshot.
func (v *view) caches() {
	for _, p := range v.list {
		if p.allocator != nil {
			v.s.Caches = p.allocator.appendTo(v.s.Caches, p.index, p.poolOrigins())
		}
	}
}

// appendTo appends what a snapshot has of the reading.
func (a *allocator) appendTo(list []AllocatorCache, index int, origins []PoolOrigin) []AllocatorCache {
	for i := range a.divided {
		list = append(list, AllocatorCache{Process: index, Time: a.time, Device: a.reading.Devices[i], Cache: a.divided[i], Repaired: a.repairs.objects, RepairedBytes: a.repairs.bytes, Origins: origins})
	}
	return list
}

// replaceCaches replaces what was read of the process before.
func (p *process) replaceCaches(s *Snapshot, index int) {
	kept := slices.DeleteFunc(slices.Clone(s.Caches), func(c AllocatorCache) bool { return c.Process == index })
	s.Caches = p.allocator.appendTo(kept, index, p.poolOrigins())
	slices.SortStableFunc(s.Caches, func(a, b AllocatorCache) int { return cmp.Compare(a.Process, b.Process) })
}

// CacheOn returns what was read of an allocator; nil: nothing.
func (s *Snapshot) CacheOn(process int, device int32) *AllocatorCache {
	for i := range s.Caches {
		if c := &s.Caches[i]; c.Process == process && c.Index == device {
			return c
		}
	}
	return nil
}

// allocator tells the latest reading of a process's allocators.
func (o *opener) allocator(p *process) {
	a := p.allocator
	if a == nil {
		return
	}
	for next, first := 0, true; first || !a.reading.Done(next); first = false {
		o.beginOf(carriedAllocator, p)
		codec.Num(o.Codec, &next)
		if first {
			a.carry(&o.carrier)
		}
		a.reading.Carry(o.Codec, &next)
	}
}

// carry carries what does not follow from the reading.
func (a *allocator) carry(c *carrier) {
	codec.Num(c.Codec, &a.time)
	c.counts(&a.repairs)
	c.Flags(&a.read)
	codec.List(c.Codec, &a.firsts, maxDevices, func(f *allocatorFirst) {
		codec.Most(c.Codec, &f.device, maxDevices-1)
		codec.Num(c.Codec, &f.time)
		c.Flags(&f.silent)
	})
	for _, list := range [...]*[]uint64{&a.gone, &a.older, &a.unbooked} {
		codec.List(c.Codec, list, caching.MaxSegments, func(address *uint64) { codec.Num(c.Codec, address) })
	}
}

func takeAllocator(c *carrier, p *process) {
	next := 0
	codec.Num(c.Codec, &next)
	if next == 0 {
		c.Check(p.allocator == nil)
		p.allocator = &allocator{reading: &caching.Reading{}}
		p.allocator.carry(c)
	}
	a := p.allocator
	if c.Check(a != nil && next == len(a.reading.Blocks)); c.Bad {
		return
	}
	had := len(a.reading.Blocks)
	a.reading.Carry(c.Codec, &next)
	p.listedBlocks += len(a.reading.Blocks) - had
	c.Check(p.listedBlocks <= maxListed)
	a.divided = a.reading.Divide()
}
