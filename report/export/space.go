// SPDX-License-Identifier: Apache-2.0

package export

import (
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	// JavaScript's numbers are exact to 2^53. Addresses of processes end well below 2^52; from there on are the invented ones of what has none.
	addressEnd = 1 << 52
	inventEnd  = 1 << 53
	maxSize    = 1 << 48 // as in the ledger

	maxExtents = 8 << 20 // live at once, as the ledger's
	maxUndo    = 1 << 16
	maxGone    = 1 << 16

	// PyTorch takes segments of at least this from the driver, at such addresses.
	segmentGrain = 2 << 20
)

// space says what lies where in the addresses of one process, as far as it is on GPUs. Segments are memory of the driver,
// blocks are PyTorch's tensors, and each block lies in segments.
type space struct {
	segments, blocks extents
	trace            trace
	last             uint32           // id of a segment
	learned          map[uint32]int32 // device of segments whose call did not tell it, by id
	hosts            map[siteKey]bool // of the calls that took segments for PyTorch: tensors were seen in one
	gone             extents          // ranges where a segment was and ended, joined
	goneAll          bool             // they were too many

	handles    map[uint64]*physical // by CUmemGenericAllocationHandle
	memories   map[uint32]*physical // by id
	lastMemory uint32
	arrays     map[arrayKey]uint64 // invented address of what has only a handle
	invented   uint64              // next address
	primaries  map[int32]*primary
	undo       map[uint32]undo // by thread: what its last free or unmap ended

	listed   []ledger.Block // the latest list of all blocks
	listedAt uint64         // time of the last event before it
	now      uint64         // time of the last event

	begin, born uint64 // of the recording, of the process
	ended       bool
	left        uint64 // events left out: impossible addresses, no room
}

type siteKey struct {
	stack uint64
	api   string
}

type arrayKey struct {
	space  ledger.Space
	handle uint64
}

func newSpace(events int) *space {
	s := &space{trace: trace{max: events}}
	s.clear()
	return s
}

// clear forgets all of a program, when the next one begins in the same process.
func (s *space) clear() {
	*s = space{
		trace:   trace{max: s.trace.max},
		learned: make(map[uint32]int32), hosts: make(map[siteKey]bool),
		handles: make(map[uint64]*physical), memories: make(map[uint32]*physical),
		arrays: make(map[arrayKey]uint64), invented: addressEnd,
		primaries: make(map[int32]*primary), undo: make(map[uint32]undo),
		begin: s.begin, born: s.born, now: s.now,
	}
}

// apply takes in an event. After the end of a process all stays as it was then.
func (s *space) apply(e *ledger.Event) {
	if e.Op == ledger.Exec || e.Op == ledger.Exit {
		s.ended = true
		s.now = max(s.now, e.Time)
		return
	}
	if s.ended && e.Time > s.now {
		s.clear()
		s.born = e.Time
	}
	s.now = max(s.now, e.Time)
	switch e.Op {
	case ledger.Alloc:
		s.alloc(e)
	case ledger.Free:
		s.free(e)
	case ledger.FreeFailed:
		s.freeFailed(e)
	case ledger.Map:
		s.mapMemory(e)
	case ledger.Unmap:
		s.unmap(e)
	case ledger.Retain:
		s.retain(e)
	case ledger.ContextRetain, ledger.ContextRelease, ledger.ContextReset, ledger.ContextDestroy:
		s.contextEvent(e)
	}
}

func (s *space) alloc(e *ledger.Event) {
	if e.Address == 0 || e.Kind != ledger.Tensor && !e.Kind.Owned() {
		return
	}
	if e.Space == ledger.Physical {
		s.create(e)
		return
	}
	if e.Size == 0 || e.Size > maxSize {
		return // of an unknown size: there is nothing to draw
	}
	x := extent{start: e.Address, size: e.Size, stack: e.Stack, time: e.Time, context: e.Context, api: e.API, device: deviceOf(e.Device), class: whole}
	switch {
	case e.Kind == ledger.Tensor:
		if e.Device == ledger.CPUDevice {
			return
		}
		x.class = tensor
		if s.fits(&x, addressEnd) {
			s.allocBlock(x)
		}
	case e.Space == ledger.Addresses:
		if s.fits(&x, addressEnd) {
			s.allocSegment(x)
		}
	default:
		key := arrayKey{e.Space, e.Address}
		s.freeArray(key, e)
		if x.start = s.invent(e.Size); x.start != 0 && s.fits(&x, inventEnd) {
			s.arrays[key] = x.start
			s.allocSegment(x)
		}
	}
}

func deviceOf(device int32) int32 {
	if device < 0 || device >= maxDevices {
		return ledger.UnknownDevice
	}
	return device
}

// maxDevices is as in the ledger.
const maxDevices = 256

// fits says whether there is room for an extent, and counts it if not. Those of the process end below the invented ones.
func (s *space) fits(x *extent, end uint64) bool {
	if x.start >= end || x.size > end-x.start || s.segments.n+s.blocks.n >= maxExtents {
		s.left++
		return false
	}
	return true
}

// invent gives an address to what has none, 0 if they are used up.
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

// allocSegment adds driver memory. Where other memory is in the books its free was not seen.
func (s *space) allocSegment(x extent) {
	s.vacate(x.start, x.end(), x.time)
	s.last++
	x.id = s.last
	s.segments.insert(x)
	s.trace.push(beginOf(x.class), &x, x.time)
}

func beginOf(c class) action {
	if c == whole {
		return segmentAlloc
	}
	return segmentMap
}

// vacate ends all segments in a range; of one from before the attach only the part inside, as its ends are guessed.
func (s *space) vacate(start, end, time uint64) {
	for _, x := range s.segments.cut(start, end) {
		rest := func(from, to uint64) {
			if from < to {
				y := x
				y.start, y.size = from, to-from
				s.segments.insert(y)
			}
		}
		if x.class == older {
			rest(x.start, start)
			rest(end, x.end())
			from, to := max(x.start, start), min(x.end(), end)
			x.start, x.size = from, to-from
		}
		s.endSegment(&x, time)
	}
}

// endSegment notes the end of a segment that has been removed, and of what was in it.
func (s *space) endSegment(x *extent, time uint64) {
	for _, b := range s.blocks.cut(x.start, x.end()) {
		s.trace.push(tensorFree, &b, time)
	}
	if x.class == whole {
		s.trace.push(segmentFree, x, time)
	} else {
		s.trace.push(segmentUnmap, x, time)
	}
	if x.class == mapped {
		s.unmapped(x)
	}
	s.went(x)
}

// went remembers that a segment was there.
func (s *space) went(x *extent) {
	start, end := x.start, x.end()
	for _, g := range s.gone.cut(start-min(start, 1), end+1) {
		start, end = min(start, g.start), max(end, g.end())
	}
	if s.gone.n >= maxGone {
		s.goneAll, s.gone = true, extents{}
	}
	if !s.goneAll {
		s.gone.insert(extent{start: start, size: end - start})
	}
}

// wasOther says whether there was a segment in a range that has ended.
func (s *space) wasOther(start, end uint64) bool {
	for g := range s.gone.from(start) {
		return g.start < end
	}
	return s.goneAll
}

// allocBlock adds a tensor. Where another one is live its free was not seen.
func (s *space) allocBlock(x extent) {
	for _, b := range s.blocks.cut(x.start, x.end()) {
		s.trace.push(tensorFree, &b, x.time)
	}
	s.cover(x.start, x.end(), x.device, x.time)
	if !s.joined(&x) { // something that was not seen has happened
		s.vacate(x.start, x.end(), x.time)
		s.cover(x.start, x.end(), x.device, x.time)
	}
	for g := range s.segments.from(x.start) {
		if g.start >= x.end() {
			break
		}
		if d := s.deviceOf(g); d >= 0 {
			x.device = d
		}
	}
	for g := range s.segments.from(x.start) {
		if g.start >= x.end() {
			break
		}
		s.host(g, x.device)
		if x.id == 0 {
			x.id = g.id
		}
	}
	s.blocks.insert(x)
	s.trace.push(tensorAlloc, &x, x.time)
}

// joined says whether what is in a tensor's range can be one segment.
func (s *space) joined(x *extent) bool {
	var first *extent
	device := int32(ledger.UnknownDevice)
	for g := range s.segments.from(x.start) {
		if g.start >= x.end() {
			break
		}
		if first == nil {
			first = g
		} else if first.class == whole || g.class == whole || first.guessed() != g.guessed() {
			return false
		}
		switch d := s.deviceOf(g); {
		case device < 0:
			device = d
		case d >= 0 && d != device:
			return false
		}
	}
	return true
}

// deviceOf is the device of a segment as far as it is known; what a tensor in it has told counts for all parts of it.
func (s *space) deviceOf(g *extent) int32 {
	if g.device >= 0 {
		return g.device
	}
	if d, ok := s.learned[g.id]; ok {
		return d
	}
	return ledger.UnknownDevice
}

// host notes that a tensor of a device lies in a segment.
func (s *space) host(g *extent, device int32) {
	if device != ledger.UnknownDevice && s.deviceOf(g) == ledger.UnknownDevice {
		s.learned[g.id] = device
	}
	if g.class == whole || g.class == mapped {
		s.hosts[siteKey{g.stack, g.api}] = true
	}
}

// cover adds segments from before the attach where a range has none: its tensors must lie in something. They are rounded to what
// PyTorch takes, up to the next segment.
func (s *space) cover(start, end uint64, device int32, time uint64) {
	for at := start; at < end; {
		if g := s.segments.at(at); g != nil {
			at = g.end()
			continue
		}
		from := max(at&^(segmentGrain-1), s.segments.before(at))
		to := min((end+segmentGrain-1)&^(segmentGrain-1), addressEnd)
		for g := range s.segments.from(at) {
			to = min(to, g.start)
			break
		}
		s.last++
		x := extent{start: from, size: to - from, time: time, id: s.last, device: device, class: older}
		if s.wasOther(from, to) {
			x.class = found
			s.trace.push(segmentMap, &x, max(time, s.now))
		}
		s.segments.insert(x)
		at = to
	}
}

// setBlocks takes over a list of all live blocks.
func (s *space) setBlocks(list []ledger.Block) {
	sortBlocks(list)
	s.listed, s.listedAt = list, s.now
	for i := range list {
		b := &list[i]
		for g := range s.segments.from(b.Address) {
			if b.Size > maxSize || b.Address >= addressEnd || g.start >= b.Address+b.Size {
				break
			}
			s.host(g, deviceOf(b.Device))
		}
	}
}
