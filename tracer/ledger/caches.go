// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// AllocatorReading has the state of PyTorch's allocators of a process as it was read from outside. Its
// blocks are marked as older where no event gave them out. It belongs to the ledger afterwards, and must not change.
type AllocatorReading struct {
	PID  uint32
	Time uint64
	*caching.Reading
}

func (in AllocatorReading) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil && !p.purged && p.End == 0 && !l.full() {
		p.setAllocator(in.Time, in.Reading)
	}
}

// AllocatorCache is what one of PyTorch's allocators had at a time, as it was read from outside.
type AllocatorCache struct {
	Process int
	Time    uint64 // of the reading
	caching.Device
	caching.Cache
}

// allocator is the latest reading of PyTorch's allocators of a process.
type allocator struct {
	time    uint64
	reading *caching.Reading
	gone    []uint64        // addresses of the sample that this reading lacks: see repair
	divided []caching.Cache // of the reading, by device
	repairs count           // blocks whose free was lost, since the begin of the process
}

// setAllocator books a reading of the allocators.
func (p *torch) setAllocator(time uint64, r *caching.Reading) {
	p.spend(64 * (len(r.Blocks) + len(r.Segments)))
	before := p.allocator
	if before == nil {
		before = &allocator{}
	}
	p.dropAllocator()
	if p.listedBlocks+len(r.Blocks) > maxListed {
		return
	}
	p.listedBlocks += len(r.Blocks)
	p.allocator = &allocator{time: time, reading: r, divided: r.Divide(), repairs: before.repairs}
	for i := range r.Devices {
		if d := &r.Devices[i]; d.Exact && d.Index < maxDevices {
			p.allocator.setFirst(p, d)
		}
	}
	if r.Exact() {
		p.allocator.repair(p, before)
		if p.walks != nil {
			p.walks.olderLeft(p.allocator)
		}
	}
}

func (p *torch) dropAllocator() {
	if p.allocator != nil {
		p.listedBlocks -= len(p.allocator.reading.Blocks)
		p.allocator = nil
	}
}

// setFirst books what an allocator has that has reported nothing since the attach: all of it is older.
func (a *allocator) setFirst(p *torch, d *caching.Device) {
	k := &d.Counters
	if k.Reserved.Current == 0 {
		return
	}
	t := &p.tensors[p.tensorsOn(d.Index)]
	if t.first.seen || t.now.known {
		return
	}
	allocated, reserved := min(k.Allocated.Current, maxTensors), min(k.Reserved.Current, maxTensors)
	t.first = firstReport{time: a.time, allocated: allocated, reserved: reserved, driver: p.driverLive(t.device), seen: true}
	p.tell(t, &Event{Time: a.time, Told: ToldAllocated | ToldLive, Allocated: allocated, Reserved: reserved})
	t.now.begun, t.now.liveKnown = true, false
}

// repair ends blocks of the sample that two exact readings lack and that were allocated before the first: their
// free was lost. One reading is not enough, since an allocator changes before it reports.
func (a *allocator) repair(p *torch, before *allocator) {
	lacks := func(address uint64) bool {
		i, ok := a.at(address)
		return !ok || a.reading.Blocks[i].State == caching.Inactive || a.reading.Blocks[i].State == caching.Unmapped
	}
	var twice []uint64
	for s := range p.all() {
		if s.kind != Tensor || s.device < 0 {
			continue
		}
		for e := s.first; e != 0; {
			b := p.entries.at(e)
			e = b.next
			if b.time >= a.time || !lacks(b.address) {
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
		a.repairs.objects++
		a.repairs.bytes += p.entries.at(n).size
		p.dropTensor(key, n, a.time)
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

// largestFree returns the longest run of free bytes of a device, 0 if it was not read. a may be nil.
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

// olderExtents returns the segments from before the attach, given all others, sorted by address. Each page of an
// expandable segment goes back by itself, and so is a segment.
func (a *allocator) olderExtents(booked []extent) (list []extent) {
	if a == nil {
		return nil
	}
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		arena := &a.reading.Arenas[s.Arena]
		for from, end := s.Address, s.Address+s.Size; from < end && len(list) < caching.MaxBlocks; {
			to := min(end, s.NextPage(from, arena.Small))
			for len(booked) > 0 && booked[0].end <= from {
				booked = booked[1:]
			}
			if len(booked) == 0 || booked[0].start >= to {
				list = append(list, extent{start: from, end: to, time: 1, device: arena.Device, older: true})
			}
			from = to
		}
	}
	return list
}

// olderBlocks returns the live blocks from before the attach, sorted by address.
func (a *allocator) olderBlocks(stack uint32) (list []stuckBlock) {
	if a == nil {
		return nil
	}
	for i := range a.reading.Blocks {
		if b := &a.reading.Blocks[i]; b.Older && b.State == caching.Active {
			list = append(list, stuckBlock{address: b.Address, size: b.Size, time: 1, stack: stack})
		}
	}
	return list
}

// caches adds what was read of PyTorch's allocators to a snapshot.
func (v *view) caches() {
	for _, p := range v.list {
		if p.allocator != nil {
			v.s.Caches = p.allocator.appendTo(v.s.Caches, p.index)
		}
	}
}

// appendTo appends what a snapshot has of the reading.
func (a *allocator) appendTo(list []AllocatorCache, index int) []AllocatorCache {
	for i := range a.divided {
		list = append(list, AllocatorCache{Process: index, Time: a.time, Device: a.reading.Devices[i], Cache: a.divided[i]})
	}
	return list
}

// replaceCaches replaces what was read of the process before.
func (p *process) replaceCaches(s *Snapshot, index int) {
	kept := slices.DeleteFunc(slices.Clone(s.Caches), func(c AllocatorCache) bool { return c.Process == index })
	s.Caches = p.allocator.appendTo(kept, index)
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
			codec.Num(o.Codec, &a.time)
			o.counts(&a.repairs)
			codec.List(o.Codec, &a.gone, maxFreed, func(address *uint64) { codec.Num(o.Codec, address) })
		}
		a.reading.Carry(o.Codec, &next)
	}
}

func takeAllocator(c *carrier, p *process) {
	next := 0
	codec.Num(c.Codec, &next)
	if next == 0 {
		c.Check(p.allocator == nil)
		p.allocator = &allocator{reading: &caching.Reading{}}
		codec.Num(c.Codec, &p.allocator.time)
		c.counts(&p.allocator.repairs)
		codec.List(c.Codec, &p.allocator.gone, maxFreed, func(address *uint64) { codec.Num(c.Codec, address) })
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
