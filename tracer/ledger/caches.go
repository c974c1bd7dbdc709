// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
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
	Origins                 []PoolOrigin  // of the process's private pools, as far as they were seen
	Captures                []PoolCapture // into them
	OnStreams               []StackStream // of the device: few live blocks of a stack, on other streams than Main
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
		if n, live := p.live[key]; live && !x.mapped && p.sites[x.site].segment && x.time < before.time && !a.reading.Overlaps(x.start, x.end) && !before.reading.Overlaps(x.start, x.end) {
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
	d := a.reading.On(device)
	if d == nil {
		return 0, 0, false
	}
	return min(d.Counters.Reserved.Current, maxTensors), a.time, true
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
		x := a.reading.BlockAt(b.address)
		return x == nil || x.State != caching.Active || x.Sampled && x.Size != b.size
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
		p.dropTensor(key, n, a.time, nil)
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
		if x := before.reading.BlockAt(b.Address); x != nil && x.Sampled && x.Size == b.Size {
			p.allocTensor(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, Device: a.reading.Arenas[b.Arena].Device, Time: before.time, Address: b.Address, Size: b.Size, API: "torch"})
			a.repaired(b.Size)
		}
	}
}

// olderAt returns the size of the block from before the attach at an address; 0: the latest reading
// has none. a may be nil.
func (a *allocator) olderAt(address uint64) uint64 {
	if a == nil {
		return 0
	}
	if b := a.reading.BlockAt(address); b != nil && b.Older && b.State != caching.Inactive {
		return b.Size
	}
	return 0
}

// segmentAt returns the size of the segment at an address in the latest reading, and its device; 0:
// the reading has none, or may not be of one moment. a may be nil.
func (a *allocator) segmentAt(address uint64) (bytes uint64, device int32) {
	if a == nil || !a.reading.Sure() {
		return 0, 0
	}
	s := a.reading.SegmentAt(address)
	if s == nil || s.Base != 0 {
		return 0, 0
	}
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
			v.s.Caches = p.appendCaches(v.s.Caches, p.index)
		}
	}
}

// appendCaches appends what a snapshot has of the reading.
func (p *process) appendCaches(list []AllocatorCache, index int) []AllocatorCache {
	a := p.allocator
	origins, captures := p.privatePools()
	streams := p.streams()
	for i := range a.divided {
		list = append(list, AllocatorCache{Process: index, Time: a.time, Device: a.reading.Devices[i], Cache: a.divided[i],
			Repaired: a.repairs.objects, RepairedBytes: a.repairs.bytes, Origins: origins, Captures: captures, OnStreams: streams[i]})
	}
	return list
}

// StackStream is what the live blocks of one stack have on one stream.
type StackStream struct {
	Stack, Stream uint64 // Stream is its handle
	Bytes         uint64
}

// maxStreamed is the most live blocks of a site whose streams are looked up: workspaces of
// libraries are few.
const maxStreamed = 8

// streams returns which blocks of stacks that have few live ones the latest reading has on other
// streams than Cache.Main, by stack and stream. It has one list for each device of the reading.
func (p *process) streams() [][]StackStream {
	a := p.allocator
	lists := make([][]StackStream, len(a.divided))
	for i := range a.divided {
		device, main := a.reading.Devices[i].Index, a.divided[i].Main
		if !slices.ContainsFunc(a.divided[i].Arenas, func(x caching.ArenaCache) bool { return x.Stream != main }) {
			continue
		}
		found := map[StackStream]uint64{}
		for s := range p.all() {
			if s.kind == Tensor && s.device == device && s.stack != 0 {
				p.addStreams(s, main, found)
			}
		}
		for x, bytes := range found {
			lists[i] = append(lists[i], StackStream{x.Stack, x.Stream, bytes})
		}
		slices.SortFunc(lists[i], func(a, b StackStream) int {
			return cmp.Or(cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Stream, b.Stream))
		})
	}
	return lists
}

// addStreams adds the bytes of a site's blocks on other streams than main, if it has few.
func (p *process) addStreams(s *site, main uint64, found map[StackStream]uint64) {
	r := p.allocator.reading
	n := 0
	for b := s.first; b != 0 && n <= maxStreamed; b = p.entries.at(b).next {
		n++
	}
	if n > maxStreamed {
		return
	}
	p.spend(1 + 16*n)
	for b := s.first; b != 0; b = p.entries.at(b).next {
		x := r.BlockAt(p.entries.at(b).address)
		if x == nil || x.State == caching.Inactive {
			continue
		}
		if stream := r.Arenas[x.Arena].Stream; stream != main {
			found[StackStream{Stack: s.stack, Stream: stream}] += x.Size
		}
	}
}

// replaceCaches replaces what was read of the process before.
func (p *process) replaceCaches(s *Snapshot, index int) {
	kept := slices.DeleteFunc(slices.Clone(s.Caches), func(c AllocatorCache) bool { return c.Process == index })
	s.Caches = p.appendCaches(kept, index)
	slices.SortStableFunc(s.Caches, func(a, b AllocatorCache) int { return cmp.Compare(a.Process, b.Process) })
}
