// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger/intervals"
)

// History is the history of a memory snapshot, for replays. Blocks' sites are stacks of Stacks.
type History struct {
	Devices []Recorded // those with a history
	Stacks  callstack.Stacks
	Comm    string // "" unless vramprof wrote the file
	PID     uint32
	// Settings are as in PYTORCH_CUDA_ALLOC_CONF.
	Settings      string
	SettingsKnown bool
	// Exported: vramprof wrote the file, whose history has no requested sizes.
	Exported bool
}

// Recorded is the history of one device.
type Recorded struct {
	Trace *allocsim.Trace // without version and settings
	// Older is the memory that PyTorch had before its history began, in bytes, as far as the
	// history shows it. Above 0, the trace does not begin with the program.
	Older uint64
	// Stacks: the history has stacks, so calls of empty_cache() are known.
	Stacks bool
}

// Record reads the history of a snapshot that torch.cuda.memory._dump_snapshot has written. An
// unlimited file is trusted. The error names the file.
func Record(name string, unlimited bool) (*History, error) {
	p, _, err := load(name, unlimited)
	if err != nil {
		return nil, err
	}
	return p.history(), nil
}

func (p *parser) history() *History {
	s := newStacks()
	r := &History{Stacks: s, Comm: bounded(p.about.comm), PID: p.about.pid, Exported: p.about.exported}
	if p.settings != nil {
		r.Settings, r.SettingsKnown = *p.settings, true
	}
	for i := range p.traces {
		if len(p.traces[i]) > 0 {
			rec := recorder{snapshot: &p.snapshot, stacks: s, device: i}
			r.Devices = append(r.Devices, rec.record())
		}
	}
	return r
}

// marks are what the frames of an event say.
type marks struct {
	known      bool
	emptyCache bool // below torch.cuda.empty_cache()
}

// recorder turns the history of a device into a trace. PyTorch records what its allocator did;
// what the program asked for is among it.
type recorder struct {
	*snapshot
	stacks  *stacks
	device  int
	trace   allocsim.Trace
	out     Recorded
	live    map[uint64]uint32 // blocks by address
	freed   map[uint64]uint32 // that wait for free_completed
	streams map[uint64]uint32
	pools   map[[2]uint64]uint32
	byList  map[*pickle.List]marks

	// Segments of cudaMalloc that went back before the dump. Another pool may have their addresses
	// since.
	ended map[*entry]bool     // by their segment_alloc
	old   intervals.Set[bool] // of them, those that are there at the moment

	reserved, peak uint64
	returned       []*entry // since the last operation: by empty_cache, or by an allocation that follows
}

func (r *recorder) record() Recorded {
	r.live, r.freed = map[uint64]uint32{}, map[uint64]uint32{}
	r.streams, r.pools = map[uint64]uint32{}, map[[2]uint64]uint32{{}: 0}
	r.byList = map[*pickle.List]marks{}
	r.trace.Device = r.device
	entries := r.traces[r.device]
	r.ended = endedIn(entries)
	r.out.Older = r.older(entries)
	slices.SortFunc(r.segmentsOf(), func(a, b segment) int { return cmp.Compare(a.start, b.start) })
	reserved := uint64(0)
	for i := range entries {
		e := &entries[i]
		r.out.Stacks = r.out.Stacks || r.marks(e).known
		switch e.action {
		case segmentAlloc, segmentMap:
			reserved += e.size
			r.peak = max(r.peak, reserved)
		case segmentFree, segmentUnmap:
			reserved -= min(e.size, reserved)
		}
	}
	for i := range entries {
		var next *entry
		if i+1 < len(entries) {
			next = &entries[i+1]
		}
		r.entry(&entries[i], next)
	}
	r.emptied(nil)
	r.out.Trace = &r.trace
	return r.out
}

// endedIn returns the segment_alloc events of segments that a segment_free follows.
func endedIn(entries []entry) map[*entry]bool {
	ended, freed := map[*entry]bool{}, map[uint64]bool{}
	for i := len(entries) - 1; i >= 0; i-- {
		switch e := &entries[i]; e.action {
		case segmentFree:
			freed[e.address] = true
		case segmentAlloc:
			if freed[e.address] {
				ended[e] = true
			}
			delete(freed, e.address)
		}
	}
	return ended
}

func (r *recorder) segmentsOf() []segment {
	if r.device < len(r.segments) {
		return r.segments[r.device]
	}
	return nil
}

// older returns the bytes of blocks and segments that are older than the history.
func (r *recorder) older(entries []entry) (bytes uint64) {
	h := r.historyOf(int32(r.device), true)
	for _, b := range h.begin.blocks {
		bytes += b.size
	}
	return max(bytes, h.begin.reserved())
}

func (r *recorder) marks(e *entry) marks {
	if e.frames == nil {
		return marks{}
	}
	m, ok := r.byList[e.frames]
	if ok {
		return m
	}
	for i, x := range e.frames.Items {
		if i == maxFrames {
			break
		}
		d := dict(x)
		m.known, m.emptyCache = true, m.emptyCache || str(d["name"]) == "empty_cache"
	}
	r.byList[e.frames] = m
	return m
}

func (r *recorder) add(e *entry, kind allocsim.Kind, block uint32) {
	r.trace.Ops = append(r.trace.Ops, allocsim.Op{Time: e.time * 1000, Block: block, Kind: kind})
}

// settle notes what is reserved after the latest operation.
func (r *recorder) settle() {
	op := len(r.trace.Ops) - 1
	if n := len(r.trace.Reserved); n > 0 && r.trace.Reserved[n-1].Op == op {
		r.trace.Reserved[n-1].Bytes = r.reserved
	} else if op >= 0 {
		r.trace.Reserved = append(r.trace.Reserved, allocsim.Reserved{Op: op, Bytes: r.reserved})
	}
}

func (r *recorder) entry(e, next *entry) {
	switch e.action {
	case segmentAlloc, segmentMap:
		r.emptied(e)
		r.reserved += e.size
		r.old.Cut(e.address, e.address+e.size)
		if r.ended[e] {
			r.old.Insert(intervals.Interval[bool]{Start: e.address, End: e.address + e.size})
		}
	case segmentFree, segmentUnmap:
		r.returned = append(r.returned, e)
		r.old.Cut(e.address, e.address+e.size)
	case alloc:
		r.emptied(e)
		r.add(e, allocsim.Malloc, r.block(e))
		r.live[e.address] = uint32(len(r.trace.Blocks) - 1)
		r.settle()
	case outOfMemory:
		r.refused()
		r.add(e, allocsim.Failed, r.block(e))
		r.settle()
	case freeRequested:
		r.emptied(nil)
		r.free(e, next)
	case freeCompleted:
		if len(r.returned) > 0 {
			if r.marks(r.returned[0]).emptyCache || !r.out.Stacks {
				r.emptied(nil) // an allocation completes frees before it gives memory back
			}
		}
		if b, ok := r.freed[e.address]; ok {
			delete(r.freed, e.address)
			r.add(e, allocsim.FreeCompleted, b)
		}
	}
}

func (r *recorder) free(e, next *entry) {
	b, ok := r.live[e.address]
	if !ok {
		return // older than the history
	}
	delete(r.live, e.address)
	if next != nil && next.action == freeCompleted && next.address == e.address {
		r.add(e, allocsim.Free, b)
		return
	}
	r.freed[e.address] = b
	r.add(e, allocsim.FreeRequested, b)
}

// refused books memory that went back because an allocation found none.
func (r *recorder) refused() {
	for _, x := range r.returned {
		r.reserved -= min(x.size, r.reserved)
	}
	r.returned = r.returned[:0]
}

// emptied books memory that went back to the driver before an event. An allocation for which the
// driver had no memory does that, and empty_cache(), which is told apart by its stack, or, without
// stacks, because no more was needed than there was at another time.
func (r *recorder) emptied(by *entry) {
	if len(r.returned) == 0 {
		return
	}
	first, before := r.returned[0], r.reserved
	m := r.marks(first)
	byProgram := m.emptyCache || by == nil
	if !r.out.Stacks && by != nil {
		byProgram = by.action == alloc || before+by.size <= r.peak
	}
	r.refused()
	if byProgram {
		r.add(first, allocsim.EmptyCache, 0)
		r.settle()
	}
}

func (r *recorder) block(e *entry) uint32 {
	stream, ok := r.streams[e.stream]
	if !ok {
		stream = uint32(len(r.streams))
		r.streams[e.stream] = stream
	}
	b := allocsim.Block{Requested: e.size, Stream: stream, Site: uint32(r.stacks.id(e.frames, ofBlock))}
	if e.action == alloc {
		b.Address, b.Pool = e.address, r.pool(e.address)
	}
	r.trace.Blocks = append(r.trace.Blocks, b)
	return uint32(len(r.trace.Blocks) - 1)
}

// pool returns the pool that has an address at the dump: a history does not name it. Segments that
// went back before were of the default pool, since private ones keep theirs while a graph uses
// them.
func (r *recorder) pool(address uint64) uint32 {
	if r.old.At(address) != nil {
		return 0
	}
	all := r.segmentsOf()
	i, ok := slices.BinarySearchFunc(all, address, func(s segment, a uint64) int { return cmp.Compare(s.start, a) })
	if !ok {
		i--
	}
	if i < 0 || address >= all[i].end {
		return 0
	}
	n, ok := r.pools[all[i].pool]
	if !ok {
		n = uint32(len(r.pools))
		r.pools[all[i].pool] = n
	}
	return n
}
