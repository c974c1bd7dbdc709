// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// setBlocks books all live blocks that a process has on its GPUs, and finds the allocations that
// they lie in. The result stays until the next call, also after the end of the process. The list
// belongs to the ledger from then on.
//
// An allocation with a block inside marks its site as one of segments for good. Blocks in no booked
// allocation lie in segments from before the attach.
func (p *process) setBlocks(list []Block) {
	p.spend(64 * len(list))
	slices.SortFunc(list, func(a, b Block) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
	})
	extents := p.extents()
	if p.learnDevices(extents, list) {
		extents = p.extents()
	}
	for s := range p.all() {
		s.inside = 0
	}
	outside := map[int32]uint64{}
	for i := range list {
		outside[list[i].Device] += list[i].Size
	}
	c := cursor{blocks: list}
	for i := range extents {
		x := &extents[i]
		s := p.sites[x.site]
		for from, to, ok := c.next(x); ok; from, to, ok = c.next(x) {
			s.inside += to - from
			s.segment = true
			outside[list[c.i].Device] -= to - from
		}
	}
	p.placeAsleep(extents, list, outside)
	for i := range p.tensors {
		t := &p.tensors[i]
		t.outside = outside[t.device]
	}
	p.torch.freeRuns = p.findFreeRuns(extents, list)
	p.keepList(list)
}

// learnDevices moves allocations on an unknown device to the device of the blocks in them: if a
// thread chose its device before the attach, only its tensors show the device.
func (p *gpuMap) learnDevices(extents []extent, list []Block) (learned bool) {
	c := cursor{blocks: list}
	for i := range extents {
		x := &extents[i]
		unknown := !x.mapped && p.sites[x.site].device == UnknownDevice
		for _, _, ok := c.next(x); ok; _, _, ok = c.next(x) {
			if device := c.blocks[c.i].Device; unknown && uint32(device) < maxDevices {
				p.move(liveKey{x.start, Addresses}, device)
				unknown, learned = false, true
			}
		}
	}
	return learned
}

// move moves a live allocation to the site with the same stack and this device.
func (p *gpuMap) move(key liveKey, device int32) {
	n, ok := p.live[key]
	if !ok {
		return
	}
	b := p.entries.at(n)
	to := p.sites[b.site].siteKey
	to.device = device
	target := p.site(to)
	for i := range p.tensors {
		t := &p.tensors[i]
		t.first.moved(b.site, target.number, b)
		t.atUsage.moved(b.site, target.number, b)
	}
	from := p.sites[b.site]
	if from.kind != Device {
		p.giveRoom(b)
	}
	rounding := p.moveRoom(from, target, b)
	for i := range p.readings {
		p.readings[i].moved(from, device, b, rounding)
	}
	p.unlink(n)
	for _, sign := range [...]int64{-1, 1} {
		s := p.sites[b.site]
		p.keepMoved(s, sign, b)
		s.liveObjects += uint64(sign)
		s.allocObjects += uint64(sign)
		s.liveBytes += uint64(sign) * b.size
		s.allocBytes += uint64(sign) * b.size
		s.track.History.Record(p.options.Begin, b.time, s.liveBytes)
		t := &p.totals[s.total]
		t.LiveObjects += uint64(sign)
		t.AllocObjects += uint64(sign)
		t.LiveBytes += uint64(sign) * b.size
		t.AllocBytes += uint64(sign) * b.size
		t.low, t.high = min(t.low, t.LiveBytes), max(t.high, t.LiveBytes)
		t.peak(b.time)
		b.site = target.number
	}
	if from.kind != Device {
		p.takeRoom(b)
	}
	from.track.Move(&target.track, p.options.Begin, b.time, b.size)
	p.link(n, target.last)
	if p.observer != nil {
		p.observer.Moved(p.allocation(n))
	}
}

// extents returns the ranges of a process's possible segments, in order and without overlaps.
func (p *driver) extents() []extent {
	var list []extent
	defer func() { p.spend(4*len(p.sites) + 64*len(list)) }()
	for s := range p.all() {
		if !s.mayBeSegment() || s.space == memories {
			continue
		}
		for b := s.first; b != 0; b = p.entries.at(b).next {
			e := p.entries.at(b)
			start, end := span(e.address, e.size)
			list = append(list, extent{start: start, end: end, time: e.time, site: s.number})
		}
	}
	if p.physical != nil {
		for x := range p.physical.mappings.From(0) {
			b, ok := p.live[liveKey{x.Value.memory, memories}]
			if !ok {
				continue
			}
			if n := p.entries.at(b).site; p.sites[n].mayBeSegment() {
				list = append(list, extent{start: x.Start, end: x.End, time: x.Value.time, site: n, mapped: true})
			}
		}
	}
	slices.SortFunc(list, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.site, b.site))
	})
	kept, end := list[:0], uint64(0)
	for _, x := range list {
		if x.start = max(x.start, end); x.start < x.end {
			kept = append(kept, x)
			end = x.end
		}
	}
	return kept
}

// findFreeRuns returns the longest run for each device. Mappings side by side are one segment.
func (p *torch) findFreeRuns(extents []extent, list []Block) (runs []freeRun) {
	note := func(device int32, bytes uint64) {
		if bytes == 0 {
			return
		}
		i := slices.IndexFunc(runs, func(r freeRun) bool { return r.device == device })
		if i < 0 {
			i = len(runs)
			runs = append(runs, freeRun{device: device})
		}
		runs[i].bytes = max(runs[i].bytes, bytes)
	}
	c := cursor{blocks: list}
	var before extent // previous segment
	var device int32
	start := uint64(0) // of the run of free bytes
	for i := range extents {
		x := &extents[i]
		s := p.sites[x.site]
		if !s.segment {
			continue
		}
		if !x.mapped || !before.mapped || before.end != x.start || s.device != device {
			note(device, before.end-start)
			start, device = x.start, s.device
		}
		for from, to, ok := c.next(x); ok; from, to, ok = c.next(x) {
			note(device, from-start)
			start = to
		}
		before = *x
	}
	note(device, before.end-start)
	return runs
}

// PoolOrigin is where a private pool of PyTorch got the oldest segment that it still has and whose
// allocation was seen.
type PoolOrigin struct {
	Pool  caching.PoolID
	Stack uint64
	API   string
	Time  uint64 // of the allocation, ns
}

// PoolCapture is what a private pool of PyTorch took from the driver for one CUDA graph, and still
// has: memory that was allocated before the graph was made executable, and after the graph before
// it. Graphs that were destroyed are not told from the next one. A MemPool, into which nothing is
// captured, has them too: see report/pools.
type PoolCapture struct {
	Pool   caching.PoolID
	Device int32  // CUDA ordinal
	Stack  uint64 // of the call that made the graph executable
	API    string
	Time   uint64 // of that call, ns
	Bytes  uint64
}

// comparePools orders by pool.
func comparePools(a, b caching.PoolID) int { return slices.Compare(a[:], b[:]) }

// privatePools returns the origins of the private pools that the latest reading has segments of, by
// pool, and what each took for CUDA graphs, by pool and time.
func (p *process) privatePools() (origins []PoolOrigin, captures []PoolCapture) {
	a := p.allocator
	if !slices.ContainsFunc(a.reading.Arenas, func(x caching.Arena) bool { return x.Pool.Private() }) {
		return nil, nil
	}
	extents, graphs := p.extents(), p.objects.graphs()
	p.spend(64*len(a.reading.Segments) + len(graphs))
	first := map[caching.PoolID]*extent{}
	type capture struct {
		pool   caching.PoolID
		device int32
		graph  int
	}
	taken := map[capture]uint64{}
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		arena := &a.reading.Arenas[s.Arena]
		if !arena.Pool.Private() {
			continue
		}
		k, _ := slices.BinarySearchFunc(extents, s.Address, func(x extent, address uint64) int { return cmp.Compare(x.end-1, address) })
		for ; k < len(extents) && extents[k].start < s.Address+s.Size; k++ {
			x := &extents[k]
			if f := first[arena.Pool]; p.sites[x.site].stack != 0 && (f == nil || x.time < f.time) {
				first[arena.Pool] = x
			}
			g, _ := slices.BinarySearchFunc(graphs, x.time, func(o driverObject, time uint64) int { return cmp.Compare(o.time, time) })
			if g < len(graphs) {
				taken[capture{arena.Pool, arena.Device, g}] += min(x.end, s.Address+s.Size) - max(x.start, s.Address)
			}
		}
	}
	for id, x := range first {
		s := p.sites[x.site]
		origins = append(origins, PoolOrigin{Pool: id, Stack: s.stack, API: s.api, Time: x.time})
	}
	for x, bytes := range taken {
		s := &p.objects.sites[graphs[x.graph].site]
		captures = append(captures, PoolCapture{x.pool, x.device, s.stack, s.api, graphs[x.graph].time, bytes})
	}
	slices.SortFunc(origins, func(a, b PoolOrigin) int { return comparePools(a.Pool, b.Pool) })
	slices.SortFunc(captures, func(a, b PoolCapture) int {
		return cmp.Or(comparePools(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Time, b.Time))
	})
	return origins, captures
}

// Block is a live block of PyTorch's allocator.
type Block struct {
	Address, Size uint64
	Device        int32 // CUDA ordinal
	Sampled       bool  // it has an event of its own; unknown in captures
}

// extent is a range of addresses that leads to memory of a site.
type extent struct {
	start, end uint64
	time       uint64 // of the allocation or mapping
	site       uint32
	mapped     bool // it is mapped by the virtual memory API
}

// cursor walks through blocks in order of their addresses.
type cursor struct {
	blocks []Block
	i      int
	at     uint64 // next has returned everything below
}

// next returns the next piece of a block that lies in x. The extents must come in order.
func (c *cursor) next(x *extent) (from, to uint64, ok bool) {
	for ; c.i < len(c.blocks); c.i++ {
		start, end := span(c.blocks[c.i].Address, c.blocks[c.i].Size)
		from := max(start, x.start, c.at)
		if from >= x.end {
			return 0, 0, false
		}
		if end > from {
			c.at = min(end, x.end)
			return from, c.at, true
		}
	}
	return 0, 0, false
}

// freeRun is the longest run of free bytes in the segments of one device.
type freeRun struct {
	device int32
	bytes  uint64
}

// blockList has the live blocks of a process as they were listed last, and those of the sample that
// were freed since.
type blockList struct {
	blocks []Block // by address; nil if all are in the sample
	freed  []uint64
	time   uint64 // of the list; 0: there was none
}

// reserved returns what the allocator has reserved now; here reports whether a site's device is the
// allocator's.
func (p *torch) reserved(t *tensors, here func(device int32) bool) uint64 {
	sum := t.now.reserved
	if sum == 0 {
		return 0
	}
	bytes, since, read := p.allocator.reservedAfter(t.device, t.now.time)
	if read {
		sum = bytes
	}
	for _, c := range t.changes {
		switch s := p.sites[c.site]; {
		case !s.segment || !here(s.device) || c.time <= since:
		case c.freed:
			sum = minus(sum, c.bytes)
		default:
			sum += c.bytes
		}
	}
	for _, r := range t.returned {
		if r.time > since {
			sum = minus(sum, r.bytes)
		}
	}
	return sum
}

// olderSegments returns what an allocator had reserved in segments from before the attach.
func (p *torch) olderSegments(r *firstReport, here func(device int32) bool) uint64 {
	bytes := r.reserved
	for _, x := range r.driver {
		if s := p.sites[x.site]; s.segment && here(s.device) {
			bytes = minus(bytes, x.bytes)
		}
	}
	return bytes
}
