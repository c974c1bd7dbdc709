// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
)

// WalkOpened marks the begin of a walk of a process's memory, whose figures are as of then. The next
// Walk of the process ends it.
type WalkOpened struct {
	PID  uint32
	Time uint64 // ns of CLOCK_MONOTONIC
}

// Walk is what one walk of a process's memory found: which objects keep its memory. See package
// holders.
type Walk struct {
	PID      uint32
	Time     uint64 // as in WalkOpened
	Took     uint64 // ns until the copy of the process's memory was complete
	Failure  string // why it found nothing: "cannot read this Python"; "" if it did
	Problems []string
	Holders  []Holder
	Storages []Storage
}

// Holder is a path that keeps memory alive. Its text is untrusted, but cleaned.
type Holder struct {
	Device     int32
	Path       string   // with a star for each number: "model.layers.*.weight"
	Frames     []string // the same as frames of a stack, the root first
	Class      string   // the path from its innermost class on: "Trainer.history[*]"; "" if none
	Also       []string // further paths to the same storages
	Container  string   // class of the innermost container: "list"; "" without one
	Containers int      // how many different containers
	Entries    int      // of all of them; -1: unknown
	Found      bool     // the path leads from Python to the storages
}

// Storage is memory that a holder keeps.
type Storage struct {
	Address uint64
	Bytes   uint64 // of the storage
	// Size of its block, if the block was allocated since the attach; 0: it is older. Of an
	// Allocation without meaning.
	Block      uint64
	Holder     uint32 // index into Walk.Holders
	InMotion   bool   // it or its holder changed while they were read
	Allocation bool   // memory that the driver gave out, not PyTorch's allocator
}

// Walked is a Walk in the books: what each holder keeps, as of Time. Of memory of PyTorch's
// allocator, the bytes are those of blocks, so that Held and what no storage explains add up to the
// allocator's total.
type Walked struct {
	Process    int
	Time, Took uint64 // as in Walk
	Failure    string
	Problems   []string
	Held       []Held       // by bytes, largest first
	Allocators []WalkTotals // by device; none where memory has no addresses, as with PyTorch before 1.10
	// By index in Held: part of Older that is live at the snapshot's moment. Nil except for the latest
	// walk of a process that found holders.
	Left []uint64
}

// Held is what one holder keeps.
type Held struct {
	Holder
	Bytes, Storages uint64
	Older           uint64 // part of Bytes that was allocated before the attach
	InMotion        uint64 // storages that changed while they were read
	Driver          uint64 // part of Bytes that the driver gave out, not PyTorch's allocator
}

// WalkTotals is what one of PyTorch's allocators had given out at the time of a walk. What Held
// explains of it is at most as much.
type WalkTotals struct {
	Device              int32
	Allocated, Held     uint64 // bytes of all blocks, and of those of a storage that the walk found
	Older, HeldOlder    uint64 // those of them that were allocated before the attach
	Excess, ExcessOlder uint64 // bytes of storages beyond the allocator's total, which Held leaves out: they were freed meanwhile
	// The allocator has not reported since the attach: the figures are what the walk found, and it may
	// have more.
	Unreported bool
}

// SiteHolder is the part of a site's live bytes that one holder keeps.
type SiteHolder struct {
	Holder int // index into Held of the process's latest Walked
	Bytes  uint64
}

const (
	// Walks that are kept of a process: the first, the latest, and some in between.
	maxWalks = 16
	// Holders of all processes' kept walks, which all processes share.
	maxHeld = 1 << 16
	// Storages of one walk.
	maxStorages = 1 << 20
	// A block of PyTorch's allocator is a multiple of this.
	blockStep = 512
)

// walks has the walks of one process.
type walks struct {
	list   []Walked
	sites  map[siteKey]*heldSite // of the latest
	blocks []heldBlock           // likewise, by address
	older  olderSet              // likewise
	open   *openWalk
}

// openWalk is the state of a process's memory when a walk began.
type openWalk struct {
	time       uint64
	allocators []WalkTotals
	freed      map[liveKey]freedEntry // since then
	given      map[uint64]struct{}    // addresses of blocks that were allocated since then
}

type freedEntry struct {
	site         siteKey
	weight, size uint64
}

// maxFreed bounds openWalk.freed and openWalk.given. Entries beyond count as blocks of which nothing is known.
const maxFreed = 1 << 16

// heldSite is what was live of a site at a walk, and how much of that each holder kept.
type heldSite struct {
	live, held uint64            // held: sum of parts
	parts      map[uint32]uint64 // by index in Held
}

// walkOf returns the process that a walk is of, or nil.
func (l *Ledger) walkOf(pid uint32, time uint64) *process {
	p := l.byPID[pid]
	if p == nil || l.full() {
		return nil
	}
	for p.Begin > time && p.older != nil {
		p = p.older
		l.spend(1)
	}
	if p.purged || p.End != 0 && time > p.End {
		return nil
	}
	return p
}

// openWalk notes what a process has now.
func (p *torch) openWalk(time uint64) {
	if p.walks == nil {
		p.walks = &walks{}
	}
	o := &openWalk{time: time, freed: map[liveKey]freedEntry{}, given: map[uint64]struct{}{}}
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device >= 0 && t.now.reserved != 0 {
			state := p.stateOf(t)
			totals := WalkTotals{Device: t.device, Allocated: max(state.allocated, state.live.bytes)}
			totals.Older = totals.Allocated - state.live.bytes
			o.allocators = append(o.allocators, totals)
		}
	}
	p.walks.open = o
}

// dropOpenWalk forgets that a walk is under way.
func (p *torch) dropOpenWalk() {
	if p.walks != nil && p.walks.open != nil {
		p.walks.open = nil
	}
}

// noteFreed keeps what a walk under way may have seen.
func (p *heap) noteFreed(key liveKey, n uint32) {
	w := p.walks
	if w.open == nil || len(w.open.freed) >= maxFreed {
		return
	}
	b := p.entries.at(n)
	if s := p.sites[b.site]; s.kind != aliased && b.time <= w.open.time {
		w.open.freed[key] = freedEntry{s.siteKey, weightOf(s, b), b.size}
	}
}

// DriverMemory returns live allocations of a process that the driver gave out and PyTorch's
// allocator did not take, at most so many: memory whose holders only its address tells.
func (l *Ledger) DriverMemory(pid uint32, most int) (list []Block) {
	p := l.byPID[pid]
	if p == nil {
		return nil
	}
	for s := range p.all() {
		if s.segment || s.space != Addresses || s.kind != Device && s.kind != Async && s.kind != Managed {
			continue
		}
		for i := s.first; i != 0 && len(list) < most; i = p.entries.at(i).next {
			b := p.entries.at(i)
			list = append(list, Block{Address: b.address, Size: b.size, Device: s.device})
		}
	}
	return list
}

// weightOf returns what an entry counts in its site's live bytes.
func weightOf(s *site, b *entry) uint64 {
	if s.kind == Tensor {
		return sampled(b.size, b.extra).bytes
	}
	return b.size
}

// closeWalk ends what openWalk began. A walk that was not opened is as of now.
func (p *torch) closeWalk(time uint64) openWalk {
	if w := p.walks; w == nil || w.open == nil || w.open.time != time {
		p.openWalk(time)
	}
	w := p.walks
	o := *w.open
	w.open = nil
	return o
}

// addWalk books a walk.
func (p *process) addWalk(in *Walk) {
	opened := p.closeWalk(in.Time)
	p.spend(64*len(in.Storages) + 256*len(in.Holders) + 64*len(opened.freed))
	if in.Failure != "" && len(p.walks.list) > 0 { // what an earlier walk found is worth more
		return
	}
	j := p.join(in, &opened)
	switch last := p.walks.latest(); {
	case in.Failure != "" || !p.gaveUp(&opened) && !j.walked.mostlyFreed():
	case last != nil && j.walked.share() < last.share()/2:
		return
	case last == nil && j.walked.share() < leastShare:
		p.keepWalk(Walked{Time: in.Time, Took: in.Took, Failure: gaveUpMemory})
		return
	}
	p.walks.sites = j.heldBy
	p.keepHeldBlocks(in, j.to)
	p.keepWalk(j.walked)
	p.keepOlder(&j)
}

const (
	// leastShare is what the first walk of a process must find of its memory if the process freed most
	// of it while it was read.
	leastShare = 0.1

	gaveUpMemory = "the process freed its memory, or ended, while it was read"
)

// gaveUp reports whether a process ended since a walk began, or freed most of its memory: one that
// ends with an uncaught error does so while it is read.
func (p *torch) gaveUp(opened *openWalk) bool {
	var then, now uint64
	for i := range opened.allocators {
		then += opened.allocators[i].Allocated
	}
	for i := range p.tensors {
		if t := &p.tensors[i]; totalsOn(opened.allocators, t.device) != nil {
			now += t.now.allocated
		}
	}
	return p.End != 0 || now < then/2
}

// latest returns the latest walk that found holders, nil without one.
func (w *walks) latest() *Walked {
	if n := len(w.list); n > 0 && w.list[n-1].Failure == "" {
		return &w.list[n-1]
	}
	return nil
}

// mostlyFreed reports whether most of what a walk found was freed before it was booked.
func (w *Walked) mostlyFreed() bool {
	var held, excess uint64
	for i := range w.Allocators {
		held, excess = held+w.Allocators[i].Held, excess+w.Allocators[i].Excess
	}
	return excess > held
}

// share returns which part of the allocators' memory a walk found; 1 if nothing is known of them.
func (w *Walked) share() float64 {
	var held, all uint64
	for i := range w.Allocators {
		held, all = held+w.Allocators[i].Held, all+w.Allocators[i].Allocated
	}
	switch {
	case all == 0 && w.mostlyFreed():
		return 0
	case all == 0:
		return 1
	}
	return float64(held) / float64(all)
}

// keepWalk adds a walk to those of a process. Beyond maxWalks, or without room, it drops the walk
// nearest to its neighbors in time, except the first and the latest.
func (p *process) keepWalk(w Walked) {
	drop := func(i int) {
		p.giveAll(tableHeld, len(p.walks.list[i].Held))
		p.walks.list = slices.Delete(p.walks.list, i, i+1)
	}
	if len(p.walks.list) == 1 && p.walks.list[0].Failure != "" {
		drop(0)
	}
	for len(p.walks.list) >= maxWalks {
		drop(p.walks.crowded())
	}
	taken := 0
	for taken < len(w.Held) {
		if p.room(tableHeld) {
			p.hold(tableHeld)
			taken++
		} else if len(p.walks.list) > 1 {
			drop(len(p.walks.list) - 1)
		} else {
			break
		}
	}
	w.cut(taken)
	p.walks.list = append(p.walks.list, w)
}

// crowded returns the walk whose neighbors are nearest to each other, but not the first or the
// latest.
func (w *walks) crowded() int {
	at, least := 1, uint64(math.MaxUint64)
	for i := 1; i < len(w.list)-1; i++ {
		if gap := w.list[i+1].Time - w.list[i-1].Time; gap < least {
			at, least = i, gap
		}
	}
	return at
}

// cut keeps the largest holders. What the others have counts as not found.
func (w *Walked) cut(n int) {
	for i := range w.Held[n:] {
		h := &w.Held[n+i]
		for k := range w.Allocators {
			if t := &w.Allocators[k]; t.Device == h.Device {
				t.Held, t.HeldOlder = minus(t.Held, h.Bytes-h.Driver), minus(t.HeldOlder, h.Older)
			}
		}
	}
	w.Held = w.Held[:n]
}

// LatestWalk returns the latest walk of a process that found holders, or else the latest, and nil
// without one.
func (s *Snapshot) LatestWalk(process int) (latest *Walked) {
	for i := range s.Walks {
		if w := &s.Walks[i]; w.Process == process && (latest == nil || w.Failure == "" || latest.Failure != "") {
			latest = w
		}
	}
	return latest
}

// FirstWalk returns the first walk of a process that found holders, or nil.
func (s *Snapshot) FirstWalk(process int) *Walked {
	for i := range s.Walks {
		if w := &s.Walks[i]; w.Process == process && w.Failure == "" {
			return w
		}
	}
	return nil
}
