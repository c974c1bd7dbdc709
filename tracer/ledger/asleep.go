// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// Sleep modes (of vLLM, torch_memory_saver) unmap and release the physical memory of PyTorch's
// segments and keep their addresses, so that the allocator still counts segments and tensors
// without memory. The ledger remembers ranges whose mapped memory ended; the live blocks in them
// are asleep until memory is mapped there again.
//
// PyTorch itself unmaps ranges, too, but none with a live block, and its totals show it.

// sleeper is a range of addresses [start, end) whose physical memory has ended.
type sleeper struct {
	start, end uint64
	time       uint64
	device     int32
	older      bool   // it was mapped before the attach, so it was not booked
	placed     bool   // setBlocks has looked for blocks in it
	inside     uint64 // bytes of blocks in it
}

// woken is a range that was mapped again. The allocator counts it as reserved all the time, but the
// books count it as a new segment.
type woken struct {
	asleep, time uint64
	device       int32
	bytes        uint64
}

// asleep has the ranges of a process without memory.
type asleep struct {
	ranges []sleeper // by address, without overlaps
	woken  []woken
	lost   []deviceLive // memory from before the attach that was unmapped, by device
	seen   bool         // there was a range ever, so the allocator's totals may exceed its memory
}

// maxSleepers is how many ranges of a process are remembered; tensors in further ones count as
// awake.
const maxSleepers = 1 << 14

// sleep remembers a range.
func (p *torch) sleep(x sleeper) {
	s := &p.asleep
	if x.start == x.end {
		return
	}
	s.seen = true
	p.spend(len(s.ranges))
	s.cut(x.start, x.end)
	at := s.seek(x.start)
	if at > 0 {
		if last := &s.ranges[at-1]; last.end == x.start && !last.placed && last.device == x.device && last.older == x.older && (x.older || last.time == x.time) {
			last.end = x.end
			return
		}
	}
	if len(s.ranges) >= maxSleepers {
		if len(p.tensors) > 0 {
			p.warnOf(fmt.Sprintf("process %d has too many ranges of unmapped memory: tensors in the rest are shown as if they had memory", p.PID))
		}
		return
	}
	s.ranges = slices.Insert(s.ranges, at, x)
}

// unmappedOlder remembers addresses that were mapped before the attach. Their device is that of the
// blocks in them or of the whole process: the current device means nothing to an unmapping.
func (p *torch) unmappedOlder(e *Event) {
	if p.purged {
		return
	}
	start, end := span(e.Address, e.Size)
	p.asleep.lose(UnknownDevice, end-start)
	p.sleep(sleeper{start: start, end: end, time: e.Time, device: UnknownDevice, older: true})
}

// mapped wakes the blocks in a range. It may also be that the thread's last unmapping failed.
func (p *torch) mapped(start, end, time uint64) {
	if p.purged {
		return
	}
	p.spend(len(p.asleep.ranges))
	for _, x := range p.asleep.cut(start, end) {
		if x.inside != 0 && !x.older && len(p.asleep.woken) < maxSleepers {
			p.asleep.woken = append(p.asleep.woken, woken{x.time, time, x.device, x.end - x.start})
		}
	}
}

// addressFree forgets ranges whose addresses are given back: nothing is asleep there.
func (p *torch) addressFree(e *Event) {
	start, end := span(e.Address, e.Size)
	p.forgetAddresses(start, end)
}

func (p *torch) forgetAddresses(start, end uint64) {
	s := &p.asleep
	if p.purged {
		return
	}
	p.spend(len(s.ranges))
	for _, x := range s.cut(start, end) {
		if x.older {
			s.lose(x.device, -(x.end - x.start))
		}
	}
}

func (s *asleep) learn(x *sleeper, device int32) {
	if x.older {
		s.lose(x.device, -(x.end - x.start))
		s.lose(device, x.end-x.start)
	}
	x.device = device
}

func (s *asleep) lose(device int32, bytes uint64) {
	at := slices.IndexFunc(s.lost, func(d deviceLive) bool { return d.device == device })
	if at < 0 {
		at = len(s.lost)
		s.lost = append(s.lost, deviceLive{device: device})
	}
	s.lost[at].bytes += bytes
}

// seek returns the index of the first range that ends above an address.
func (s *asleep) seek(address uint64) int {
	return sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].end > address })
}

// holds reports whether an address is in a range.
func (s *asleep) holds(address uint64) bool {
	at := s.seek(address)
	return at < len(s.ranges) && s.ranges[at].start <= address
}

// cut removes [start, end) from all ranges and returns the removed parts, with their share of the
// blocks.
func (s *asleep) cut(start, end uint64) (taken []sleeper) {
	from := s.seek(start)
	to := from
	var rest []sleeper
	for ; to < len(s.ranges) && s.ranges[to].start < end; to++ {
		x := s.ranges[to]
		for _, part := range [...]struct {
			start, end uint64
			list       *[]sleeper
		}{{x.start, min(x.end, start), &rest}, {max(x.start, start), min(x.end, end), &taken}, {max(x.start, end), x.end, &rest}} {
			if part.start < part.end {
				*part.list = append(*part.list, x.part(part.start, part.end))
			}
		}
	}
	if to > from {
		s.ranges = slices.Replace(s.ranges, from, to, rest...)
	}
	return taken
}

func (x sleeper) part(start, end uint64) sleeper {
	high, low := bits.Mul64(x.inside, end-start)
	x.inside, _ = bits.Div64(high, low, x.end-x.start) // at most the size of the part
	x.start, x.end = start, end
	return x
}

// placeAsleep finds the blocks that lie in ranges without memory, using the list of all, and
// subtracts them from those outside of all segments. It forgets ranges without blocks: PyTorch has
// given them back, or they do not matter.
func (p *torch) placeAsleep(extents []extent, list []Block, outside map[int32]uint64) {
	s := &p.asleep
	p.spend(len(s.woken)*len(p.tensors) + (len(s.ranges)+1)*len(extents)/256)
	s.forgetWoken(p)
	if len(s.ranges) == 0 {
		return
	}
	for i := range extents { // addresses that were allocated again
		s.cut(extents[i].start, extents[i].end)
	}
	c := cursor{blocks: list}
	kept := s.ranges[:0]
	for _, x := range s.ranges {
		x.inside, x.placed = 0, true
		for from, to, ok := c.next(&extent{start: x.start, end: x.end}); ok; from, to, ok = c.next(&extent{start: x.start, end: x.end}) {
			x.inside += to - from
			if device := list[c.i].Device; x.device != device {
				s.learn(&x, device)
			}
			outside[x.device] -= to - from
		}
		if x.inside > 0 || x.older {
			kept = append(kept, x)
		}
	}
	s.ranges = kept
	if slices.ContainsFunc(kept, func(x sleeper) bool { return x.inside > 0 }) {
		p.placeSampled()
	}
}

// placeSampled sums the blocks of the sample that are asleep by site.
func (p *torch) placeSampled() {
	p.spend(len(p.sites))
	for site := range p.all() {
		if site.kind != Tensor {
			continue
		}
		for b := site.first; b != 0; b = p.entries.at(b).next {
			p.spend(8)
			if x := p.entries.at(b); p.asleep.holds(x.address) {
				site.inside += sampled(x.size, x.extra).bytes
			}
		}
	}
}

// forgetWoken drops ranges that the allocators' latest reports include.
func (s *asleep) forgetWoken(p *torch) {
	s.woken = slices.DeleteFunc(s.woken, func(x woken) bool {
		return slices.ContainsFunc(p.tensors, func(t tensors) bool { return t.device == x.device && !t.mayNotKnow(x.time) })
	})
}

// compact keeps the sums of a process that lost its entries: its addresses mean nothing any more.
func (s *asleep) compact(p *torch) {
	kept := s.ranges[:0]
	for _, x := range s.ranges {
		at := slices.IndexFunc(kept, func(y sleeper) bool {
			return x.device == y.device && x.older == y.older && x.placed == y.placed && !slices.ContainsFunc(p.tensors, func(t tensors) bool {
				return t.mayNotKnow(x.time) != t.mayNotKnow(y.time)
			})
		})
		if at < 0 {
			kept = append(kept, x)
			continue
		}
		kept[at].end += x.end - x.start
		kept[at].inside += x.inside
	}
	s.ranges = slices.Clip(kept)
}

// asleepSum sums the ranges of one device.
type asleepSum struct {
	inside uint64 // bytes of blocks in them
	fresh  uint64 // bytes of ranges before the next BlockList
	older  uint64 // bytes of ranges mapped before the attach
	lost   uint64 // bytes of those, and of such that were mapped again
	// Segments that the allocator counts less those that the books have, since its latest report.
	reserved int64
}

func (s *asleep) on(t *tensors, here func(device int32) bool) (sum asleepSum) {
	for i := range s.ranges {
		x := &s.ranges[i]
		switch {
		case !here(x.device):
			continue
		case x.older:
			sum.older += x.end - x.start
		case !x.placed:
			sum.fresh += x.end - x.start
		case t.mayNotKnow(x.time):
			sum.reserved += int64(x.end - x.start)
		}
		sum.inside += x.inside
	}
	for i := range s.woken {
		if x := &s.woken[i]; here(x.device) && t.mayNotKnow(x.time) && !t.mayNotKnow(x.asleep) {
			sum.reserved -= int64(x.bytes)
		}
	}
	for _, d := range s.lost {
		if here(d.device) {
			sum.lost += d.bytes
		}
	}
	return sum
}

// An allocator that gives segments back to the driver (torch.cuda.empty_cache) does not report it:
// what it has reserved since its latest report follows from calls of the driver.

// segmentChange is a driver allocation, or the end of one, that may be a segment.
type segmentChange struct {
	time  uint64
	site  uint32
	bytes uint64
	freed bool
}

// returned is a segment from before the attach that was given back: a reading of the allocator has
// its size.
type returned struct{ address, bytes, time uint64 }

// maxSegmentChanges bounds the changes since an allocator's latest report; a busy one reports soon.
const maxSegmentChanges = 1 << 16

// segmentChanged notes a change that the latest report may not include.
func (p *torch) segmentChanged(s *site, bytes, time uint64, freed bool) {
	if len(p.tensors) == 0 || p.purged || !s.mayBeSegment() {
		return
	}
	p.spend(len(p.tensors))
	for i := range p.tensors {
		if t := &p.tensors[i]; (t.device == s.device || s.device == UnknownDevice) && t.device >= 0 && t.mayNotKnow(time) && len(t.changes) < maxSegmentChanges {
			t.changes = append(t.changes, segmentChange{time, s.number, bytes, freed})
		}
	}
}

// mayNotKnow reports whether the latest report may be older than time.
func (t *tensors) mayNotKnow(time uint64) bool {
	return !t.now.known || t.now.time != 0 && time > t.now.time
}

// forgetChanges drops changes that the latest report includes.
func (t *tensors) forgetChanges() {
	rest := t.changes[:0]
	for _, c := range t.changes {
		if t.mayNotKnow(c.time) {
			rest = append(rest, c)
		}
	}
	t.changes = rest
	t.returned = slices.DeleteFunc(t.returned, func(r returned) bool { return !t.mayNotKnow(r.time) })
}

// giveBack notes the free of a segment that the books lack and the latest reading of the allocator
// has, and reports whether it is one. a may be nil.
func (a *allocator) giveBack(p *torch, e *Event) bool {
	bytes, device := a.segmentAt(e.Address)
	at := slices.IndexFunc(p.tensors, func(t tensors) bool { return t.device == device && t.now.known })
	if bytes == 0 || at < 0 || e.Space != Addresses || p.purged {
		return false
	}
	t := &p.tensors[at]
	p.spend(len(t.returned) / 16)
	if len(t.returned) >= maxSegmentChanges || slices.ContainsFunc(t.returned, func(r returned) bool { return r.address == e.Address }) {
		return false // the second free of an address is of what an event was lost of
	}
	if t.mayNotKnow(e.Time) {
		t.returned = append(t.returned, returned{e.Address, bytes, e.Time})
	}
	return true
}

// keepBack undoes giveBack: the free failed.
func keepBack(list []tensors, address uint64) {
	for i := range list {
		t := &list[i]
		t.returned = slices.DeleteFunc(t.returned, func(r returned) bool { return r.address == address })
	}
}
