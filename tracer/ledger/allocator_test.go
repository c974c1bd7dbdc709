// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// fakeAllocator does what PyTorch's allocator does on one device, half of it before the attach, and
// computes what the books must have in a slow and simple way.
type fakeAllocator struct {
	rng                               *rand.Rand
	device                            int32
	attached                          bool
	report                            func(Event)
	now                               func() uint64
	sampled                           func(class int) bool
	halvings                          func() uint8   // of its rate; nil: none
	mostHalvings                      uint8          // of a block of the sample
	segments                          []*fakeSegment // by address
	blocks                            []*fakeBlock
	classes                           [SizeClasses]ClassTotals
	allocated, reserved               uint64
	latest                            TensorTotals // as of the latest report
	reported                          bool
	nextSegment, nextPage, nextHandle uint64
}

type fakeSegment struct {
	start, end uint64
	stack      uint64
	handle     uint64 // of the virtual memory API; else 0
	older      bool
}

type fakeBlock struct {
	start, size, stack uint64
	older, sampled     bool
}

const (
	fakePage   = 8192
	fakeBase   = 1 << 32 // of each device
	fakeMapped = 1 << 20 // above it, of what is mapped
)

func newFakeAllocator(rng *rand.Rand, device int32) *fakeAllocator {
	base := uint64(device+1) * fakeBase
	return &fakeAllocator{rng: rng, device: device, nextSegment: base, nextPage: base + fakeMapped, nextHandle: base}
}

func (f *fakeAllocator) event(e Event) {
	if f.attached {
		e.Device = f.device
		f.report(e)
	}
}

// areas are ranges of addresses in which a block has room: segments, and mappings that are side by
// side.
func (f *fakeAllocator) areas(of func(*fakeSegment) bool) (list [][2]uint64) {
	mapped := false
	for _, s := range f.segments {
		if !of(s) {
			continue
		}
		if n := len(list) - 1; n >= 0 && mapped && s.handle != 0 && list[n][1] == s.start {
			list[n][1] = s.end
		} else {
			list = append(list, [2]uint64{s.start, s.end})
		}
		mapped = s.handle != 0
	}
	return list
}

// gaps are the free runs in ranges.
func (f *fakeAllocator) gaps(areas [][2]uint64) (list [][2]uint64) {
	for _, a := range areas {
		at := a[0]
		for _, b := range f.blocks {
			if end := b.start + b.size; b.start < a[1] && end > a[0] {
				list = append(list, [2]uint64{at, max(at, b.start)})
				at = end
			}
		}
		list = append(list, [2]uint64{at, max(at, a[1])})
	}
	return slices.DeleteFunc(list, func(g [2]uint64) bool { return g[0] == g[1] })
}

func (f *fakeAllocator) any(*fakeSegment) bool { return true }

// grow takes a segment, or some pages more, from the driver.
func (f *fakeAllocator) grow(size uint64) {
	stack := 100 + f.rng.Uint64N(3)
	if f.rng.Uint64N(2) == 0 {
		s := &fakeSegment{f.nextSegment, f.nextSegment + (size+4095)/4096*4096, stack, 0, !f.attached}
		f.nextSegment = s.end + 4096*f.rng.Uint64N(2)
		f.segments = append(f.segments, s)
		f.reserved += s.end - s.start
		f.event(Event{Op: Alloc, Kind: Device, Address: s.start, Size: s.end - s.start, Stack: stack, API: "cudaMalloc"})
	} else {
		for range (size + fakePage - 1) / fakePage {
			f.nextHandle++
			s := &fakeSegment{f.nextPage, f.nextPage + fakePage, stack, f.nextHandle, !f.attached}
			f.nextPage = s.end
			f.segments = append(f.segments, s)
			f.reserved += fakePage
			f.event(Event{Op: Alloc, Kind: VMM, Space: Physical, Address: s.handle, Size: fakePage, Stack: stack, API: "cuMemCreate"})
			f.event(Event{Op: Map, Handle: s.handle, Address: s.start, Size: fakePage})
		}
	}
	slices.SortFunc(f.segments, func(a, b *fakeSegment) int { return cmp.Compare(a.start, b.start) })
}

func (f *fakeAllocator) malloc() {
	size := 512 * (1 + f.rng.Uint64N(8)*f.rng.Uint64N(4)*f.rng.Uint64N(3))
	fits := func() [][2]uint64 {
		return slices.DeleteFunc(f.gaps(f.areas(f.any)), func(g [2]uint64) bool { return g[1]-g[0] < size })
	}
	list := fits()
	if len(list) == 0 {
		f.grow(size)
		list = fits()
	}
	g := list[f.rng.IntN(len(list))]
	defer f.tell()
	b := &fakeBlock{start: g[0], size: size, stack: 1 + f.rng.Uint64N(6), older: !f.attached}
	f.blocks = append(f.blocks, b)
	slices.SortFunc(f.blocks, func(a, b *fakeBlock) int { return cmp.Compare(a.start, b.start) })
	f.first()
	f.allocated += size
	if b.older {
		return
	}
	c := &f.classes[SizeClass(size)]
	c.Allocs++
	c.AllocBytes += size
	halvings := uint8(0)
	if f.halvings != nil {
		halvings = f.halvings()
	}
	if b.sampled = f.sampled(SizeClass(size)) && f.rng.Uint64N(1<<halvings) == 0; b.sampled {
		f.mostHalvings = max(f.mostHalvings, halvings)
		f.event(Event{Op: Alloc, Kind: Tensor, Space: Blocks, Address: b.start, Size: size, Stack: b.stack, Halvings: halvings, API: "torch"})
	}
}

// first reports the state before the first report.
func (f *fakeAllocator) first() {
	if f.attached && !f.reported {
		f.reported = true
		f.event(Event{Op: Allocator, Size: f.allocated, Handle: f.reserved})
	}
}

// tell ends a report: the kernel half does not know what the allocator gives back to the driver
// later.
func (f *fakeAllocator) tell() {
	if f.attached {
		f.latest = TensorTotals{PID: 7, Device: f.device, Reported: f.now(), Allocated: f.allocated, Reserved: f.reserved}
	}
}

func (f *fakeAllocator) free(i int) {
	defer f.tell()
	b := f.blocks[i]
	f.blocks = slices.Delete(f.blocks, i, i+1)
	f.first()
	f.allocated -= b.size
	if b.older {
		return
	}
	c := &f.classes[SizeClass(b.size)]
	c.Frees++
	c.FreeBytes += b.size
	if b.sampled {
		f.event(Event{Op: Free, Space: Blocks, Address: b.start})
	}
}

// emptyCache gives segments without blocks back.
func (f *fakeAllocator) emptyCache() {
	older := false
	f.segments = slices.DeleteFunc(f.segments, func(s *fakeSegment) bool {
		if f.inside(s, func(*fakeBlock) bool { return true }) > 0 {
			return false
		}
		f.reserved -= s.end - s.start
		older = older || s.older
		if s.handle != 0 {
			f.event(Event{Op: Unmap, Address: s.start, Size: fakePage})
			f.event(Event{Op: Free, Space: Physical, Address: s.handle})
		} else {
			f.event(Event{Op: Free, Address: s.start})
		}
		return true
	})
	if older {
		f.malloc() // only the next report shows that they are gone
	}
}

// inside are the bytes of blocks that lie in a segment.
func (f *fakeAllocator) inside(s *fakeSegment, of func(*fakeBlock) bool) (sum uint64) {
	for _, b := range f.blocks {
		if of(b) {
			sum += minus(min(b.start+b.size, s.end), max(b.start, s.start))
		}
	}
	return sum
}

func (f *fakeAllocator) step() {
	switch n := f.rng.Uint64N(100); {
	case n < 52 || len(f.blocks) == 0:
		f.malloc()
	case n < 98:
		f.free(f.rng.IntN(len(f.blocks)))
	case f.reported || !f.attached: // else of unknown size, so taken for another library's
		f.emptyCache()
	}
}

func (f *fakeAllocator) totals() TensorTotals {
	t := f.latest
	t.Classes = f.classes[:]
	return t
}

// liveBlocks lists the blocks that the kernel half knows, in any order.
func (f *fakeAllocator) liveBlocks() (list []Block) {
	for _, b := range f.blocks {
		if !b.older {
			list = append(list, Block{Address: b.start, Size: b.size, Device: f.device})
		}
	}
	f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// want returns what the books must have of the device; context is the other memory at the attach.
func (f *fakeAllocator) want(process int, context uint64) Tensors {
	younger := func(s *fakeSegment) bool { return !s.older }
	t := Tensors{Process: process, Device: f.device, Allocated: f.allocated, Reserved: f.reserved, Halvings: f.mostHalvings, Foreign: context}
	for _, c := range f.classes {
		t.AllocObjects += c.Allocs
		t.AllocBytes += c.AllocBytes
	}
	for _, b := range f.blocks {
		if b.older {
			t.Older += b.size
			continue
		}
		t.LiveObjects++
		t.LiveBytes += b.size
		if b.sampled {
			t.Sampled++
		}
	}
	all := func(*fakeBlock) bool { return true }
	for _, s := range f.segments {
		if free := s.end - s.start - f.inside(s, all); s.older {
			t.OlderCached += free
		} else {
			t.Segments += s.end - s.start
			t.Cached += free
		}
	}
	for _, g := range f.gaps(f.areas(younger)) {
		t.LargestFree = max(t.LargestFree, g[1]-g[0])
	}
	return t
}
