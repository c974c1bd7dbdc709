// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// torch has the books of the PyTorch allocators of a process.
type torch struct {
	heap
	tensors   []tensors // by device
	blockList blockList
	freeRuns  []freeRun // by device, in segments
	asleep    asleep
	allocator *allocator // nil: it was not read
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
	olderFreed  growth.History // freed bytes of blocks from before the attach, by readings
	first       firstReport
	// Since the allocator's latest report.
	changes  []segmentChange // of driver allocations
	returned []returned      // ends of segments from before the attach

	peak     highest // by the allocator's own count
	livePeak highest // of live bytes
	atPeak   tellPeak
	atHigh   tellHigh
	atUsage  firstReport // state of the allocator at NVML's latest reading

	outside uint64 // bytes of live blocks in no booked segment, at the last BlockList

	open     bool          // it is not traced now: the blocks of the sample are those of some time ago
	untraced bool          // it was not traced for some time: then what no event gave out may have been allocated in that
	lost     uint64        // when blocks ended because of that the latest time; 0: never
	traced   uint64        // bytes from before the attach that did not leave in such times
	phases   growth.Phases // in which it was traced, with what it had at least

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
		p.dropTensor(key, old, e.Time, (*growth.Presumed).Remove)
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
	s.track.History.Record(p.options.Begin, e.Time, s.liveBytes)
	s.track.Add(p.options.Begin, e.Time, w.bytes)
	if t.untraced {
		s.presume().Add(p.options.Begin, e.Time, w.bytes)
	}
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
		p.dropTensor(key, n, e.Time, nil)
	}
	p.tellTotals(e)
}

// dropTensor ends a block. lost is how it leaves site.presumed, nil if it was seen to be freed.
func (p *torch) dropTensor(key liveKey, n uint32, time uint64, lost lose) {
	if p.observer != nil {
		p.observer.Freed(p.allocation(n), time)
	}
	b := p.entries.at(n)
	w, birth, s := sampled(b.size, b.extra), b.time, p.sites[b.site]
	if x := s.presumed; x != nil && lost != nil {
		lost(x, p.options.Begin, birth, time, w.bytes)
	} else if x != nil {
		x.Free(p.options.Begin, birth, time, w.bytes)
	}
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
	s.track.History.Record(p.options.Begin, time, s.liveBytes)
	s.track.Remove(p.options.Begin, birth, time, w.bytes)
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

// ClassTotals counts the blocks of one size class that were allocated since the attach.
type ClassTotals struct{ Allocs, AllocBytes, Frees, FreeBytes uint64 }

// TensorTotals is what the kernel half has counted of one allocator: every block, not only those of
// the sample.
type TensorTotals struct {
	PID      uint32
	Device   int32  // CUDA ordinal, or CPUDevice
	Reported uint64 // time of the allocator's latest report; 0: unknown
	// The allocator's own totals after its latest report, 0 if it reports none; unused for
	// CPUDevice.
	Allocated, Reserved uint64
	// Live bytes of Classes after the same report; 0 if they were not counted.
	Live uint64
	// Highest Allocated since the attach (without totals: highest Live) and when that was; 0 if not
	// every report was read.
	Peak, PeakTime         uint64
	OlderFrees, OlderBytes uint64 // freed blocks that were allocated before the attach
	// Blocks beyond the room of the kernel half's tables, which are in no class.
	Unbooked uint64
	Classes  []ClassTotals // by SizeClass
}

// tensorReading is a TensorTotals within the bounds of the books.
type tensorReading struct {
	taken               bool
	reported            uint64 // time of the latest report in it
	allocated, reserved uint64
	olderFreed          uint64
	live, freed         count // sums over classes
	classes             []tensorClass
}

// tensorClass has the exact totals of one size class.
type tensorClass struct{ live, freed count }

// setTotals books a reading of one allocator's totals.
func (p *torch) setTotals(time uint64, x *TensorTotals) {
	t := &p.tensors[p.tensorsOn(tensorDevice(x.Device))]
	before := t.reading
	t.reading = newReading(x, before.classes)
	r := &t.reading
	t.since = sampleSince{}
	if r.olderFreed != before.olderFreed {
		t.olderFreed.Record(p.options.Begin, time, r.olderFreed)
	}
	t.livePeak.reach(r.live.bytes, time)
	if t.device < 0 {
		r.allocated, r.reserved = 0, 0
		t.peak = t.livePeak
		return
	}
	p.keepTold(t)
	t.readTotals(x, time)
	p.reachedTensors(t.now.allocated, cmp.Or(t.now.time, time))
	if x.PeakTime != 0 && r.reserved != 0 {
		t.peak.reach(min(x.Peak, maxTensors), x.PeakTime)
	} else if x.PeakTime != 0 {
		t.livePeak.reach(min(x.Peak, maxTensors), x.PeakTime)
	}
	t.peak.reach(r.allocated, time)
	if !t.first.seen && r.reserved != 0 { // its event was lost, or is still to come
		t.first = firstReport{time: time, reserved: r.reserved, driver: p.driverLive(t.device), seen: true}
	}
	p.doubtTotals(t, &before)
	if x.Unbooked != 0 && !t.unbooked {
		t.unbooked = true
		p.warnOf(fmt.Sprintf("process %d has more live tensors on cuda:%d than can be followed: the rest is shown as allocated before the attach", p.PID, t.device))
	}
}

func (p *torch) doubtTotals(t *tensors, last *tensorReading) {
	r := &t.reading
	excess := minus(r.live.bytes, r.allocated)
	if t.first.final {
		// Memory from before the attach can only shrink.
		older := minus(t.first.allocated, r.olderFreed)
		excess = max(excess, minus(r.allocated, r.live.bytes+older))
	}
	if excess == 0 || t.open || r.reserved == 0 || t.contradicted {
		return
	}
	freed := minus(r.freed.bytes, last.freed.bytes)
	churn := 2*freed + minus(r.live.bytes, last.live.bytes)
	// more than the reports between two readings explain
	if p.End != 0 || last.taken && excess > churn {
		t.contradicted = true
		before := ""
		if older := minus(t.first.allocated, r.olderFreed); older > 0 {
			before = fmt.Sprintf(", and %d bytes before it", older)
		}
		p.warnOf(fmt.Sprintf("process %d: PyTorch's allocator reports %d bytes allocated on cuda:%d, but tensors of %d bytes were allocated since the attach and not freed%s",
			p.PID, r.allocated, t.device, r.live.bytes, before))
	}
}

// newReading returns a reading within bounds; reuse has room for classes.
func newReading(x *TensorTotals, reuse []tensorClass) tensorReading {
	r := tensorReading{taken: true, reported: x.Reported, allocated: min(x.Allocated, maxTensors), reserved: min(x.Reserved, maxTensors), olderFreed: x.OlderBytes, classes: reuse[:0]}
	for _, c := range x.Classes[:min(len(x.Classes), SizeClasses)] {
		k := tensorClass{live: count{minus(c.Allocs, c.Frees), minus(c.AllocBytes, c.FreeBytes)}}
		k.freed = count{c.Allocs - k.live.objects, c.AllocBytes - k.live.bytes}
		r.live.take(&k.live)
		r.freed.take(&k.freed)
		r.classes = append(r.classes, k)
	}
	return r
}

// class returns the exact totals of a size class.
func (r *tensorReading) class(n int) tensorClass {
	if n < len(r.classes) {
		return r.classes[n]
	}
	return tensorClass{}
}

// totalsOf returns the totals of a process. If it uses one GPU only, known and unknown device are
// one, and the sum over all devices has the peak of both together.
func (p *torch) totalsOf(only int32, moments []tensorState) []Total {
	var list []Total
	for _, t := range p.totals {
		sums := only != UnknownDevice && !t.Kind.OnHost()
		if sums != (t.Device == allDevices) || t.AllocObjects == 0 {
			continue
		}
		if sums {
			t.Device = only
		}
		list = append(list, t.Total)
	}
	for i := range p.tensors {
		t := &p.tensors[i]
		live, freed := moments[i].live, moments[i].freed
		if live == (count{}) && freed == (count{}) {
			continue
		}
		list = append(list, Total{
			Device: t.device, Kind: Tensor, LiveObjects: live.objects, LiveBytes: live.bytes,
			AllocObjects: live.objects + freed.objects, AllocBytes: live.bytes + freed.bytes,
			PeakBytes: max(t.livePeak.bytes, live.bytes), PeakTime: t.livePeak.time,
		})
	}
	slices.SortFunc(list, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// holdsMemory reports whether the books have live memory of the process that the driver counts as
// its own, or that PyTorch's allocators had before the attach.
func (p *torch) holdsMemory() bool {
	return slices.ContainsFunc(p.totals, func(t runningTotal) bool {
		return t.Device != allDevices && t.Kind.Owned() && t.LiveBytes > 0
	}) || slices.ContainsFunc(p.tensors, func(t tensors) bool { return t.device >= 0 && t.now.reserved > 0 })
}

// isNameless reports whether an allocator reports addresses of its own structures, not of blocks.
func (p *torch) isNameless(device int32) bool {
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device == device {
			return t.now.known && t.now.reserved == 0
		}
	}
	return false
}
