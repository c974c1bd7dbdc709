// SPDX-License-Identifier: Apache-2.0

package ledger

import "math/bits"

// SizeClasses is the number of size classes of blocks.
const SizeClasses = 128

// SizeClass returns the size class of a block, as the kernel half computes it: four classes per
// doubling, from 512 bytes on.
func SizeClass(size uint64) int {
	if size < 512 {
		return 0
	}
	log := bits.Len64(size>>9) - 1
	return min(1+4*log+int(size>>(log+7)&3), SizeClasses-1)
}

// torch has the books of the PyTorch allocators of a process.
type torch struct {
	heap
	tensors   []tensors // by device
	blockList blockList
	freeRuns  []freeRun // by device, in segments
	asleep    asleep
}

// tensors has the books of one process's PyTorch allocator on one device.
type tensors struct {
	device      int32
	live, freed count  // of the sample, weighted
	sampled     uint64 // live blocks in the sample
	halvings    uint8  // most halvings of a block
	reading     tensorReading
	since       sampleSince // changes of the sample since the reading
	now         toldTotals
	olderFreed  history // freed bytes of blocks from before the attach, by readings
	first       firstReport
	changes     []segmentChange // of driver allocations, since the allocator's latest report

	peak     highest // by the allocator's own count
	livePeak highest // of live bytes
	atPeak   tellPeak
	atHigh   tellHigh
	atUsage  firstReport // state of the allocator at NVML's latest reading

	outside uint64 // bytes of live blocks in no booked segment, at the last BlockList

	contradicted, unbooked bool // the warning has been given
}

// firstReport is the state of an allocator before its first report since the attach.
type firstReport struct {
	time                uint64
	allocated, reserved uint64
	driver              []siteLive // driver allocations booked by then, including segments
	seen                bool
	final               bool // it comes from an Allocator event and will not be corrected
}

// siteLive is the live bytes of a site at some moment.
type siteLive struct {
	site  uint32
	bytes uint64
}

// moved notes that an allocation which existed at that time belongs to another site.
func (f *firstReport) moved(from, to uint32, b *entry) {
	if b.time > f.time {
		return
	}
	for i := range f.driver {
		if x := &f.driver[i]; x.site == from && x.bytes >= b.size {
			x.bytes -= b.size
			f.driver = append(f.driver, siteLive{to, b.size})
			return
		}
	}
}

// tensorsOn returns the index in p.tensors of a device. A process uses few.
func (p *torch) tensorsOn(device int32) uint32 {
	p.spend(len(p.tensors))
	for i := range p.tensors {
		if p.tensors[i].device == device {
			return uint32(i)
		}
	}
	p.limiter.tensors++
	p.tensors = append(p.tensors, tensors{device: device})
	return uint32(len(p.tensors) - 1)
}

// allocTensor books a block of the sample. The free of a live block at the same address was not
// reported, as when PyTorch restores the private pool of a CUDA graph.
func (p *torch) allocTensor(e *Event) {
	if p.purged || !e.isBlock() {
		return
	}
	key := liveKey{e.Address, Blocks}
	if old, ok := p.live[key]; ok {
		p.dropTensor(key, old, e.Time)
	}
	s := p.site(siteKey{
		stack: e.Stack, device: tensorDevice(e.Device), kind: Tensor, space: Blocks,
		class: uint8(SizeClass(e.Size)), api: e.API,
	})
	if !p.room(tableLive) {
		p.evict(s)
		return
	}
	if w := p.walks; w != nil {
		w.gaveOut(e.Address)
	}
	t := p.sumOf(s)
	halvings := min(e.Halvings, maxHalvings)
	w := sampled(e.Size, uint32(halvings))
	if w.bytes > maxTensors-t.live.bytes {
		return
	}
	t.sampled++
	t.halvings = max(t.halvings, halvings)
	t.live.objects += w.objects
	t.live.bytes += w.bytes
	p.keep(s)
	s.liveObjects += w.objects
	s.liveBytes += w.bytes
	s.liveSquares += w.objects * w.objects
	s.history.record(p.options.Begin, e.Time, s.liveBytes)
	s.aged(p.options.Begin, e.Time, w.bytes)
	t.sampleChanged(s.class, e.Time, &w, false)
	b := p.addEntry(key, entry{address: e.Address, size: e.Size, time: e.Time, site: s.number, extra: uint32(halvings)})
	p.link(b, s.last)
	if p.observer != nil {
		p.observer.Allocated(p.allocation(b), e.Time)
	}
}

// sumOf returns the sums that a site of kind Tensor is part of.
func (p *torch) sumOf(s *site) *tensors {
	if !s.summed {
		s.total, s.summed = p.tensorsOn(s.device), true
	}
	return &p.tensors[s.total]
}

// freeTensor ends a block of the sample. It may be unknown: its allocation was lost, or there was
// no room for it. TensorTotals count frees of blocks from before the attach.
func (p *torch) freeTensor(e *Event) {
	key := liveKey{e.Address, Blocks}
	if n, ok := p.live[key]; ok {
		p.dropTensor(key, n, e.Time)
	}
	p.tellTotals(e)
}

func (p *torch) dropTensor(key liveKey, n uint32, time uint64) {
	if p.observer != nil {
		p.observer.Freed(p.allocation(n), time)
	}
	b := p.entries.at(n)
	w, birth, s := sampled(b.size, b.extra), b.time, p.sites[b.site]
	p.noteListedFreed(b.address)
	p.unlink(n)
	p.dropEntry(key, n)
	t := &p.tensors[s.total]
	t.sampled--
	t.live.objects -= w.objects
	t.live.bytes -= w.bytes
	p.keep(s)
	s.liveObjects -= w.objects
	s.liveBytes -= w.bytes
	s.liveSquares -= w.objects * w.objects
	s.history.record(p.options.Begin, time, s.liveBytes)
	s.died(p.options.Begin, birth, time, w.bytes)
	t.freed.take(&w)
	t.sampleChanged(s.class, time, &w, true)
	s.allocObjects += w.objects
	s.allocBytes += w.bytes
}

// bookAllocator books what an allocator had reserved before its first report since the attach.
func (p *torch) bookAllocator(e *Event) {
	device := tensorDevice(e.Device)
	if device < 0 || p.purged {
		return
	}
	if t := &p.tensors[p.tensorsOn(device)]; !t.first.final {
		t.first = firstReport{time: e.Time, allocated: e.Size, reserved: e.Handle, driver: p.driverLive(device), seen: true, final: true}
		p.tell(t, &Event{Time: e.Time, Told: ToldAllocated | ToldLive, Allocated: e.Size, Reserved: e.Handle})
		t.now.begun, t.now.liveKnown = true, false
	}
}

// driverLive returns the live bytes on a device of the sites that may be segments.
func (p *heap) driverLive(device int32) (list []siteLive) {
	p.spend(len(p.sites))
	for s := range p.all() {
		if s.mayBeSegment() && s.liveBytes != 0 && (s.device == device || s.device == UnknownDevice) && len(list) < maxSiteLive {
			list = append(list, siteLive{s.number, s.liveBytes})
		}
	}
	return list
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
