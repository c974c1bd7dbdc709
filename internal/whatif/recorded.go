// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// process is one process of a capture.
type process struct {
	about
	pid    uint32
	traces map[int32]*recorded // by device
	ranges ranges
}

// about is what conditions need to know of a process.
type about struct {
	uuids []string
	lost  uint64
	torch []ledger.PyTorch // that differ from the one before
}

// maxSettings bounds the changes of the settings of a process.
const maxSettings = 64

// recorded makes the trace of one allocator of its events, in their order.
type recorded struct {
	process *process
	device  int32
	started uint64
	first   uint64 // time of the reading that the trace begins with; 0: it begins with the program
	begun   bool   // the trace has begun: what the allocator had is known
	late    bool
	older   uint64 // bytes that it had before its first event

	trace   allocsim.Trace
	live    map[uint64]uint32 // address → block
	waiting map[uint64]uint32 // address → block that was freed and waits for streams
	early   map[uint64]uint64 // address → stack of blocks from before the begin of the trace
	streams numbers
	sites   numbers
	pools   pools
	last    map[uint32]uint32 // thread → its last block, whose stream and pool it uses

	gone    []memory // given back to the driver since the last operation
	refused int      // how many of them before the driver refused memory; -1: it did not

	allocs, counted          uint64 // seen, and reported by the allocator
	noSizes, noEnds          uint64
	frees, unknown, untraced uint64
	other                    other
}

func newRecorded(p *process, device int32) *recorded {
	return &recorded{
		process: p, device: device, trace: allocsim.Trace{Device: int(device)}, live: map[uint64]uint32{}, waiting: map[uint64]uint32{}, early: map[uint64]uint64{},
		streams: newNumbers(), sites: newNumbers(), pools: newPools(), last: map[uint32]uint32{}, refused: -1,
	}
}

// block takes an event of a block.
func (t *recorded) block(e *ledger.Event) {
	if t.started == 0 {
		t.started = e.Time
	}
	if e.Told&ledger.ToldAllocated != 0 {
		t.other.reserves(e.Reserved)
	}
	if e.Op == ledger.Allocator {
		t.older = e.Size
		t.begun = t.begun || e.Size == 0
		return
	}
	if !t.begun {
		switch e.Op {
		case ledger.Alloc:
			if len(t.early) < 1<<22 {
				t.early[e.Address] = e.Stack
			}
		case ledger.Free:
			delete(t.early, e.Address)
		}
		return
	}
	if e.Time <= t.first {
		return // the reading has it
	}
	switch {
	case e.Op == ledger.Alloc:
		t.alloc(e)
	case e.Op == ledger.Free || e.Op == ledger.Totals && e.Detail&ledger.DetailOlder != 0:
		t.free(e)
	case e.Op == ledger.Totals && e.Detail&ledger.DetailFailed != 0:
		t.failed(e)
	case e.Op == ledger.Completed:
		// Where the allocator waited for all streams because it was out of memory, this comes
		// before its allocation.
		if n, ok := t.waiting[e.Address]; ok {
			delete(t.waiting, e.Address)
			t.add(e, allocsim.FreeCompleted, n)
		}
	}
}

// add appends an operation, and what was reserved after it.
func (t *recorded) add(e *ledger.Event, kind allocsim.Kind, block uint32) {
	t.trace.Ops = append(t.trace.Ops, allocsim.Op{Time: e.Time, Block: block, Kind: kind})
	if e.Told&ledger.ToldAllocated != 0 && (kind == allocsim.Malloc || kind == allocsim.Free || kind == allocsim.FreeRequested) {
		t.trace.Reserved = append(t.trace.Reserved, allocsim.Reserved{Op: len(t.trace.Ops) - 1, Bytes: e.Reserved})
	}
}

func (t *recorded) newBlock(b allocsim.Block) uint32 {
	t.trace.Blocks = append(t.trace.Blocks, b)
	return uint32(len(t.trace.Blocks) - 1)
}

func (t *recorded) alloc(e *ledger.Event) {
	t.allocs++
	b := allocsim.Block{Requested: e.Requested, Address: e.Address, Stream: t.streams.get(e.Stream), Site: t.sites.get(e.Stack)}
	if e.Detail&ledger.DetailKnown == 0 {
		t.noSizes++
		b.Requested = e.Size
	}
	if old, ok := t.live[e.Address]; ok { // its free was lost
		t.unknown++
		t.add(&ledger.Event{Time: e.Time}, allocsim.Free, old)
	}
	t.driverGave(e, true)
	b.Pool = t.pools.number(e.Pool, t.process.ranges.pool(t, e.Address))
	t.process.ranges.own(t, e.Address, e.Size, b.Pool)
	n := t.newBlock(b)
	t.live[e.Address] = n
	if len(t.last) < 1<<16 {
		t.last[e.TID] = n
	}
	t.add(e, allocsim.Malloc, n)
}

func (t *recorded) free(e *ledger.Event) {
	t.frees++
	n, ok := t.live[e.Address]
	if !ok {
		t.unknown++
		return
	}
	delete(t.live, e.Address)
	t.driverGave(e, false)
	if e.Detail&ledger.DetailKnown == 0 {
		t.noEnds++
	}
	if e.Detail&ledger.DetailWaits != 0 {
		t.waiting[e.Address] = n
		t.add(e, allocsim.FreeRequested, n)
		return
	}
	t.add(e, allocsim.Free, n)
}

// failed takes an allocation that ran out of memory, in the stream and pool that its thread used
// last.
func (t *recorded) failed(e *ledger.Event) {
	b := allocsim.Block{Requested: e.Requested}
	if n, ok := t.last[e.TID]; ok {
		b.Stream, b.Pool = t.trace.Blocks[n].Stream, t.trace.Blocks[n].Pool
	}
	t.driverGave(e, true)
	t.add(e, allocsim.Failed, t.newBlock(b))
}

// refuse notes that the driver had no memory.
func (t *recorded) refuse() {
	if t.refused < 0 {
		t.refused = len(t.gone)
	}
}

// driverGave adds the operations that explain what was given back to the driver before an
// operation. The allocator itself does it in an allocation, after the driver refused memory; else
// the program called empty_cache().
func (t *recorded) driverGave(e *ledger.Event, allocates bool) {
	emptied := len(t.gone)
	if allocates && t.refused >= 0 {
		emptied = t.refused
	}
	before := &ledger.Event{Time: e.Time}
	for _, m := range t.gone {
		if m.pool != 0 && t.pools.release(m.pool) {
			t.add(before, allocsim.PoolReleased, m.pool)
		}
	}
	if emptied > 0 {
		t.add(before, allocsim.EmptyCache, 0)
	}
	t.gone, t.refused = t.gone[:0], -1
}

// finish returns the trace, or nil for an allocator without blocks.
func (t *recorded) finish(a *about) *Captured {
	if t.started == 0 && len(t.trace.Start) == 0 {
		return nil
	}
	c := &Captured{PID: t.process.pid, Started: t.started, Trace: &t.trace, Sites: t.sites.list, Streams: t.streams.list, Late: t.late, Other: t.other}
	t.renumberPools()
	note := func(code Code, count, of uint64) {
		if count > 0 {
			c.Conditions = append(c.Conditions, Condition{Code: code, Count: count, Of: of})
		}
	}
	if !t.begun {
		c.Conditions = append(c.Conditions, Condition{Code: NotFromStart, Count: t.older})
	}
	if t.counted > t.allocs && !t.late && t.begun {
		c.Conditions = append(c.Conditions, Condition{Code: Sampled, Count: t.allocs, Of: t.counted})
	}
	note(NoSizes, t.noSizes, t.allocs)
	note(NoEnds, t.noEnds, t.frees)
	note(UnknownBlocks, t.unknown, t.frees)
	note(Lost, a.lost, 0)
	note(Untraced, t.untraced, 0)
	note(SharedPools, t.pools.ambiguous(), 0)
	c.Conditions = append(c.Conditions, a.settle(&t.trace)...)
	return c
}

// renumberPools gives blocks and segments the numbers of pools that turned out to be one.
func (t *recorded) renumberPools() {
	for i := range t.trace.Blocks {
		t.trace.Blocks[i].Pool = t.pools.find(t.trace.Blocks[i].Pool)
	}
	for i := range t.trace.Start {
		t.trace.Start[i].Pool = t.pools.find(t.trace.Start[i].Pool)
	}
	for i := range t.trace.Ops {
		if o := &t.trace.Ops[i]; o.Kind == allocsim.PoolReleased {
			o.Block = t.pools.find(o.Block)
		}
	}
}

func (a *about) add(in ledger.PyTorch) {
	if n := len(a.torch); n < maxSettings && (n == 0 || a.torch[n-1].Settings != in.Settings || a.torch[n-1].Version != in.Version || a.torch[n-1].InUse != in.InUse) {
		a.torch = append(a.torch, in)
	}
}

// settle sets the version and settings of a trace, and returns what is wrong with them.
func (a *about) settle(t *allocsim.Trace) (list []Condition) {
	if len(a.torch) == 0 {
		return []Condition{{Code: UnknownSettings}, {Code: UnknownVersion}}
	}
	for _, p := range a.torch {
		if p.Version != "" {
			t.Version = p.Version
		}
	}
	used := a.torch[0].Settings
	for _, p := range a.torch[1:] {
		if p.Settings != used {
			list = append(list, Condition{Code: ChangedSettings, Text: used, Other: p.Settings})
			break
		}
	}
	s, err := allocsim.ParseSettings(used)
	if err != nil {
		list = append(list, Condition{Code: OtherSettings, Text: used, Err: err})
	}
	t.Settings = s
	if t.Version == "" {
		return append(list, Condition{Code: UnknownVersion})
	}
	if _, err := allocsim.RulesOf(t.Version); err != nil {
		list = append(list, Condition{Code: OtherVersion, Text: t.Version})
	}
	return list
}

// memory is what the driver gave: one allocation, or one mapping.
type memory struct {
	start, end uint64
	owner      *recorded // the allocator whose blocks lie in it; nil: none's
	pool       uint32    // of the blocks
}

// ranges is the driver's memory, by address, without overlaps.
type ranges struct {
	list  []memory
	moved int // elements, by all changes
}

// maxOwned bounds the ranges of one block: 80 GiB in mappings of 20 MiB.
const maxOwned = 1 << 12

// maxRanges bounds ranges.list: PyTorch has thousands of segments.
const maxRanges = 1 << 16

// maxMoved bounds the time that changes of many ranges take: to 10 s. A program with 4,000 segments
// that gives back and gets 500,000 reaches it. What comes later is not in the list, so the replay
// differs, and the job is refused.
const maxMoved = 1 << 30

// from returns the index of the first range that ends behind an address.
func (r *ranges) from(address uint64) int {
	i, _ := slices.BinarySearchFunc(r.list, address, func(m memory, a uint64) int {
		if m.end <= a {
			return -1
		}
		return 1
	})
	return i
}

// add adds memory, in place of what lies there.
func (r *ranges) add(address, size uint64) {
	end := address + size
	if size == 0 || end < address || len(r.list) >= maxRanges || r.moved >= maxMoved {
		return
	}
	r.remove(address, size)
	i, _ := slices.BinarySearchFunc(r.list, address, func(m memory, a uint64) int { return cmp.Compare(m.start, a) })
	r.moved += len(r.list) - i
	r.list = slices.Insert(r.list, i, memory{start: address, end: end})
}

// remove removes the ranges that have a byte of these, and returns those with blocks of PyTorch.
func (r *ranges) remove(address, size uint64) (owned []memory) {
	first := r.from(address)
	last := first
	for ; last < len(r.list) && r.list[last].start < address+size; last++ {
		if r.list[last].owner != nil {
			owned = append(owned, r.list[last])
		}
	}
	if last > first {
		r.moved += len(r.list) - last
		r.list = slices.Delete(r.list, first, last)
	}
	return owned
}

// own notes that a block of an allocator's pool lies in some memory.
func (r *ranges) own(t *recorded, address, size uint64, pool uint32) {
	first := r.from(address)
	for i := first; i < min(len(r.list), first+maxOwned) && r.list[i].start < address+size; i++ {
		r.list[i].owner, r.list[i].pool = t, pool
	}
}

// pool returns the pool of an allocator's memory at an address, or 0.
func (r *ranges) pool(t *recorded, address uint64) uint32 {
	if i := r.from(address); i < len(r.list) && r.list[i].start <= address && r.list[i].owner == t {
		return r.list[i].pool
	}
	return 0
}
