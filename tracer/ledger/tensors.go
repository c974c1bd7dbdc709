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

// Most bytes of live and of freed blocks of one device, so that sums of all fit 64 bits.
const maxTensors = maxSum / 2

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

// Most sites of a firstReport: a program has few before its first tensor.
const maxSiteLive = 1 << 12

// maxHalvings is how often the kernel half halves a probability at most. Weights are at most
// 2^maxHalvings.
const maxHalvings = 12

// sampled returns what a block of the sample stands for among those of its size class: if the
// probability was p/2^halvings, it counts as 2^halvings blocks. The exact totals of the class
// account for p.
func sampled(size uint64, halvings uint32) count {
	return count{1 << halvings, size << halvings}
}

// tensorDevice returns the device of a block: a GPU, the host, or UnknownDevice.
func tensorDevice(device int32) int32 {
	if uint32(device) >= maxDevices && device != CPUDevice {
		return UnknownDevice
	}
	return device
}

// tensorsOn returns the index in p.tensors of a device. A process uses few.
func (l *Ledger) tensorsOn(p *process, device int32) uint32 {
	l.spend(len(p.tensors))
	for i := range p.tensors {
		if p.tensors[i].device == device {
			return uint32(i)
		}
	}
	l.limiter.tensors++
	p.tensors = append(p.tensors, tensors{device: device})
	return uint32(len(p.tensors) - 1)
}

// allocTensor books a block of the sample. The free of a live block at the same address was not
// reported, as when PyTorch restores the private pool of a CUDA graph.
func (l *Ledger) allocTensor(e *Event) {
	if e.Kind != Tensor || e.Space != Blocks || e.Address == 0 || e.Size == 0 || e.Size > maxSize {
		return
	}
	p := l.instance(e.PID, e.Time)
	if l.procs[p].purged {
		return
	}
	key := liveKey{e.Address, p, Blocks}
	if old, ok := l.live[key]; ok {
		l.dropTensor(key, old, e.Time)
	}
	n := l.site(siteKey{
		stack: e.Stack, process: p, device: tensorDevice(e.Device), kind: Tensor, space: Blocks,
		class: uint8(SizeClass(e.Size)), api: e.API,
	})
	s := &l.sites[n]
	if !l.room(tableLive, &l.procs[p]) {
		l.evict(s)
		return
	}
	if w := l.procs[p].walks; w != nil {
		w.gaveOut(e.Address)
	}
	t := &l.procs[p].tensors[s.total]
	halvings := min(e.Halvings, maxHalvings)
	w := sampled(e.Size, uint32(halvings))
	if w.bytes > maxTensors-t.live.bytes {
		return
	}
	t.sampled++
	t.halvings = max(t.halvings, halvings)
	t.live.objects += w.objects
	t.live.bytes += w.bytes
	l.procs[p].keep(s)
	s.liveObjects += w.objects
	s.liveBytes += w.bytes
	s.liveSquares += w.objects * w.objects
	s.history.record(l.options.Begin, e.Time, s.liveBytes)
	s.aged(l.options.Begin, e.Time, w.bytes)
	t.sampleChanged(s.class, e.Time, &w, false)
	b := l.addEntry(key, &l.procs[p], entry{address: e.Address, size: e.Size, time: e.Time, site: n, extra: uint32(halvings)})
	l.link(b, s.last)
	if l.observer != nil {
		l.observer.Allocated(l.allocation(b), e.Time)
	}
}

// freeTensor ends a block of the sample. It may be unknown: its allocation was lost, or there was
// no room for it. TensorTotals count frees of blocks from before the attach.
func (l *Ledger) freeTensor(e *Event) {
	p := l.instance(e.PID, e.Time)
	key := liveKey{e.Address, p, Blocks}
	if n, ok := l.live[key]; ok {
		l.dropTensor(key, n, e.Time)
	}
	l.tellTotals(e)
}

func (l *Ledger) dropTensor(key liveKey, n uint32, time uint64) {
	if l.observer != nil {
		l.observer.Freed(l.allocation(n), time)
	}
	b := l.entries.at(n)
	w, birth, s := sampled(b.size, b.extra), b.time, &l.sites[b.site]
	l.noteListedFreed(&l.procs[key.process], b.address)
	l.unlink(n)
	l.dropEntry(key, n)
	t := &l.procs[key.process].tensors[s.total]
	t.sampled--
	t.live.objects -= w.objects
	t.live.bytes -= w.bytes
	l.procs[key.process].keep(s)
	s.liveObjects -= w.objects
	s.liveBytes -= w.bytes
	s.liveSquares -= w.objects * w.objects
	s.history.record(l.options.Begin, time, s.liveBytes)
	s.died(l.options.Begin, birth, time, w.bytes)
	t.freed.take(&w)
	t.sampleChanged(s.class, time, &w, true)
	s.allocObjects += w.objects
	s.allocBytes += w.bytes
}

// bookAllocator books what an bookAllocator had reserved before its first report since the attach.
func (l *Ledger) bookAllocator(e *Event) {
	n := l.instance(e.PID, e.Time)
	device := tensorDevice(e.Device)
	if device < 0 || l.procs[n].purged {
		return
	}
	p := &l.procs[n]
	if t := &p.tensors[l.tensorsOn(p, device)]; !t.first.final {
		t.first = firstReport{time: e.Time, allocated: e.Size, reserved: e.Handle, driver: l.driverLive(p, device), seen: true, final: true}
		l.tell(p, t, &Event{Time: e.Time, Told: ToldAllocated | ToldLive, Allocated: e.Size, Reserved: e.Handle})
		t.now.begun, t.now.liveKnown = true, false
	}
}

// driverLive returns the live bytes on a device of the sites that may be segments.
func (l *Ledger) driverLive(p *process, device int32) (list []siteLive) {
	l.spend(len(p.sites))
	for _, n := range p.sites {
		s := &l.sites[n]
		if s.mayBeSegment() && s.liveBytes != 0 && (s.device == device || s.device == UnknownDevice) && len(list) < maxSiteLive {
			list = append(list, siteLive{n, s.liveBytes})
		}
	}
	return list
}
