// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	// JavaScript's numbers are exact up to 2^53. Addresses of processes end well below 2^52; above
	// are invented ones, of memory that has no address.
	addressEnd = 1 << 52
	inventEnd  = 1 << 53

	maxSize    = 1 << 48 // as in the ledger
	maxDevices = 256     // likewise
	maxExtents = 8 << 20 // at once, as many as the ledger's live allocations
	maxGone    = 1 << 16

	// PyTorch takes segments of at least this size from the driver, aligned to it.
	segmentGrain = 2 << 20
)

// space is the GPU memory of one process by address, as the ledger tells it. Segments are driver
// memory, blocks are PyTorch's tensors, and each block lies in segments.
type space struct {
	process          uint32 // its number in the ledger
	segments, blocks extents
	trace            trace
	last             uint32           // id of a segment
	learned          map[uint32]int32 // device of segments whose call did not tell it, by id
	// Calls that took segments for PyTorch: tensors were seen in one.
	hosts   map[siteKey]bool
	gone    extents // ranges of segments that have ended, joined
	goneAll bool    // they were too many

	memories map[uint64]*physical // by number
	arrays   map[arrayKey]uint64  // invented address of memory that has only a handle
	invented uint64               // next address

	listed   []ledger.Block // the latest list of all blocks
	listedAt uint64         // time of the last event before it
	walked   walked
	now      uint64 // time of the last event
	left     uint64 // allocations left out: impossible addresses, no room
}

// physical is memory of the virtual memory API.
type physical struct {
	memory ledger.Allocation
	drawn  bool // a segment shows the first of its mappings
}

type siteKey struct {
	stack uint64
	api   string
}

type arrayKey struct {
	space  ledger.Space
	handle uint64
}

func newSpace(process uint32, events int) *space {
	return &space{
		process: process, trace: trace{max: events},
		learned: make(map[uint32]int32), hosts: make(map[siteKey]bool),
		memories: make(map[uint64]*physical), arrays: make(map[arrayKey]uint64), invented: addressEnd,
	}
}

// allocated adds memory. If time is later than a.Time, it is live again, since its free failed.
func (s *space) allocated(a *ledger.Allocation, time uint64) {
	x := extent{Start: a.Address, End: a.Address + a.Size, Value: contentsOf(a)}
	switch {
	case !takes(a):
	case a.Space == ledger.Physical:
		s.memories[a.Address] = &physical{memory: *a}
	case a.Size == 0: // unknown
	case a.Kind == ledger.Tensor:
		if s.fits(a.Address, a.Size, addressEnd) {
			s.allocBlock(x)
		}
	case a.Space == ledger.Addresses:
		if s.fits(a.Address, a.Size, addressEnd) {
			s.allocSegment(x, time)
		}
	default:
		if at := s.invent(a.Size); at != 0 && s.fits(at, a.Size, inventEnd) {
			s.arrays[arrayKey{a.Space, a.Address}] = at
			x.Start, x.End = at, at+a.Size
			s.allocSegment(x, time)
		}
	}
}

// takes reports whether memory is on a GPU and of the process itself.
func takes(a *ledger.Allocation) bool {
	return a.Kind.Owned() || a.Kind == ledger.Tensor && a.Device != ledger.CPUDevice
}

func contentsOf(a *ledger.Allocation) contents {
	c := contents{stack: a.Stack, time: a.Time, api: a.API, device: a.Device, class: whole}
	if a.Kind == ledger.Tensor {
		c.class = tensor
	}
	return c
}

// deviceOf returns UnknownDevice for anything that is no device.
func deviceOf(device int32) int32 {
	if device < 0 || device >= maxDevices {
		return ledger.UnknownDevice
	}
	return device
}

// fits reports whether there is room for an extent, and counts it if not. Extents of the process
// end below the invented ones.
func (s *space) fits(start, size, end uint64) bool {
	if start >= end || size > end-start || s.segments.Len()+s.blocks.Len() >= maxExtents {
		s.left++
		return false
	}
	return true
}

// invent returns an address for memory without one, 0 if they are used up.
func (s *space) invent(size uint64) uint64 {
	size = (size + 511) &^ 511
	if size > inventEnd-s.invented {
		s.left++
		return 0
	}
	at := s.invented
	s.invented += size
	return at
}

// segmentOf returns the segment of an allocation, nil without one.
func (s *space) segmentOf(a *ledger.Allocation) *extent {
	at := a.Address
	switch a.Space {
	case ledger.Addresses:
		if at >= addressEnd {
			return nil
		}
	case ledger.Arrays, ledger.Mipmaps, ledger.Externals:
		var ok bool
		if at, ok = s.arrays[arrayKey{a.Space, a.Address}]; !ok {
			return nil
		}
	default:
		return nil
	}
	if g := s.segments.At(at); g != nil && g.Start == at && g.Value.class == whole {
		return g
	}
	return nil
}

// freed ends an allocation or a block.
func (s *space) freed(a *ledger.Allocation, time uint64) {
	switch a.Space {
	case ledger.Blocks:
		if b := s.blocks.At(a.Address); b != nil && b.Start == a.Address {
			s.endBlocks(b.Start, b.End, time)
		}
	case ledger.Physical:
		delete(s.memories, a.Address)
	default:
		if g := s.segmentOf(a); g != nil && takes(a) {
			s.end(g, time)
		}
		delete(s.arrays, arrayKey{a.Space, a.Address})
	}
}

// mapped adds a segment for physical memory that has none yet: memory that is mapped twice exists
// once.
func (s *space) mapped(m *ledger.Mapping, time uint64) {
	p := s.memories[m.Memory.Address]
	if p == nil {
		return
	}
	p.memory.Size = m.Memory.Size // it may be known by the mapping only
	if size := m.End - m.Start; p.drawn || size == 0 || size > maxSize || m.Start == 0 || !s.fits(m.Start, size, addressEnd) {
		return
	}
	x := extent{Start: m.Start, End: m.End, Value: contentsOf(&p.memory)}
	x.Value.class, x.Value.memory, x.Value.time = mapped, m.Memory.Address, m.Time
	s.allocSegment(x, time)
}

// unmapped ends the segment of a mapping, if it has one.
func (s *space) unmapped(m *ledger.Mapping, time uint64) {
	g := s.segments.At(m.Start)
	if g != nil && g.Start == m.Start && g.Value.class == mapped && g.Value.memory == m.Memory.Address {
		s.end(g, time)
	}
}

// moved notes the device of an allocation, which became known.
func (s *space) moved(a *ledger.Allocation) {
	if g := s.segmentOf(a); g != nil && s.deviceOf(g) == ledger.UnknownDevice && a.Device >= 0 {
		s.learned[g.Value.id] = a.Device
	}
}

// unmatched ends memory from before the attach that is freed or unmapped.
func (s *space) unmatched(space ledger.Space, address, time uint64) {
	if space != ledger.Addresses {
		return
	}
	if g := s.segments.At(address); g != nil && g.Value.guessed() {
		s.freeOlder(address, time)
	}
}

// setBlocks takes over a list of all live blocks.
func (s *space) setBlocks(list []ledger.Block) {
	slices.SortFunc(list, func(a, b ledger.Block) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
	})
	s.listed, s.listedAt = list, s.now
	for i := range list {
		b := &list[i]
		if b.Size > maxSize || b.Address >= addressEnd {
			continue
		}
		for g := range s.segments.Overlap(b.Address, b.Address+b.Size) {
			s.host(g, deviceOf(b.Device))
		}
	}
}

const errorOutOfMemory = 2

// isOutOfMemory reports whether a failed allocation lacked memory of a GPU.
func isOutOfMemory(e *ledger.Event) bool {
	return e.Op == ledger.AllocFailed && e.Result == errorOutOfMemory &&
		(e.Kind.Owned() || e.Kind == ledger.Tensor && e.Device != ledger.CPUDevice)
}

// outOfMemory notes an allocation that failed while so many bytes of the GPU were free.
func (s *space) outOfMemory(e *ledger.Event, free uint64) {
	size := e.Size
	if size > maxSize {
		size = 0
	}
	start := min(free, inventEnd)
	s.trace.push(outOfMemory, &extent{Start: start, End: start + size, Value: contents{stack: e.Stack, api: e.API, device: deviceOf(e.Device)}}, e.Time)
}

// walked is the latest walk of a process: its blocks by address.
type walked struct {
	time   uint64
	blocks []heldBlock
	paths  []string // clean of control characters
}

// heldBlock is who kept a block at the latest walk.
type heldBlock struct {
	address, size uint64
	holder        uint32 // index into walked.paths
}
