// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/vramprof/vramprof/tracer/ledger/chunks"
	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// heap has what one process has allocated: live entries, and the sites that sum them.
type heap struct {
	*member
	sites      []*site // by number; nil: the number is unused
	unused     []uint32
	siteOf     map[siteKey]uint32
	classes    map[classKey]uint32 // first site of kind Tensor, whatever its size class
	recent     []*site             // cache of siteOf, by slot
	live       map[liveKey]uint32  // number of the entry
	entries    entries
	totals     []runningTotal // per device and kind, and per kind over allDevices
	peak       peakMark
	high       highMark
	pages      map[uint64]page       // shared by small allocations, by address / driverPage
	graphs     map[int32]*chunks.Set // of memory of graphs, by device
	clients    map[uint64]int        // of the kernel driver: how many live objects of the space Objects they have
	purged     bool                  // the process ended a while ago, and has no entries any more
	archived   []byte                // its sites then: see archive
	unsized    uint64                // live allocations of unknown size then
	endings    uint64                // contexts that ended
	walks      *walks                // of its memory; nil without one
	olderFreed uint64                // time of the latest free of memory that is not booked
	past       bool                  // of a view: its totals are of another moment than its rounding
}

type liveKey struct {
	address uint64 // of physical memory: its number
	space   Space
}

type siteKey struct {
	stack   uint64
	context uint64
	device  int32
	kind    Kind
	space   Space
	class   uint8 // SizeClass of a Tensor
	api     string
}

type failureKey struct {
	siteKey
	result int32
}

// site sums the allocations of one kind from one stack, in one context and on one device.
type site struct {
	siteKey
	number                   uint32 // index in heap.sites
	liveObjects, liveBytes   uint64 // of kind Tensor: weighted, see sampled
	allocObjects, allocBytes uint64 // of kind Tensor: freed ones, weighted
	liveSquares              uint64 // of kind Tensor: sum of the squared weights of live blocks
	first, last              uint32 // list of live entries by time
	// Indexes of heap.totals: of the device, of all devices; of kind Tensor: of torch.tensors;
	// unused for aliased.
	total, sum uint32
	track      growth.Track
	presumed   *growth.Presumed // of kind Tensor: nil before the first pause of tracing

	// The fields below are not used for each event.

	// Bytes of live blocks in its allocations at the last BlockList; of kind Tensor: of sampled
	// blocks that are asleep.
	inside  uint64
	peak    sitePeak
	high    *siteHigh // nil: never kept
	oldest  uint64    // time of the oldest entry, of a process whose entries were purged
	early   count     // ended before the end of their context was reported
	ended   uint64    // heap.endings when its context ended last
	segment bool
	summed  bool   // of kind Tensor: total is set
	bare    bool   // it takes a place of tableBare instead of tableSites
	free    bool   // it takes no place
	evicted uint64 // Site.Evicted
	crowded uint64 // Site.Crowded
}

// lastFree is the effect of a thread's latest free.
type lastFree struct {
	entry   entry  // prev was its neighbor then
	endings uint64 // heap.endings at that time
	space   Space
	outcome outcome
}

type outcome uint8

const (
	unmatched    outcome = iota // no allocation had the address
	freed                       // the entry ended, or lost a reference
	lessPhysical                // see undo.released
	givenBack                   // see tensors.returned
)

// runningTotal is a Total with the lowest and highest LiveBytes since UsageOpened.
type runningTotal struct {
	Total
	low, high uint64
	rounding  rounding // without that of graphs
}

func (t *Total) peak(time uint64) {
	if t.LiveBytes > t.PeakBytes {
		t.PeakBytes, t.PeakTime = t.LiveBytes, time
	}
}

// classKey is what sites of kind Tensor that differ by size class have in common.
type classKey struct {
	stack  uint64
	device int32
}

// weightOf returns what an entry counts in its site's live bytes.
func weightOf(s *site, b *entry) uint64 {
	if s.kind == Tensor {
		return sampled(b.size, b.extra).bytes
	}
	return b.size
}

// sampled returns what a block of the sample stands for among those of its size class: if the
// probability was p/2^halvings, it counts as 2^halvings blocks. The exact totals of the class
// account for p.
func sampled(size uint64, halvings uint32) count {
	return count{1 << halvings, size << halvings}
}

// mayBeSegment reports whether PyTorch's allocator could have made the site's allocations.
func (s *site) mayBeSegment() bool {
	return s.kind == Device && s.space == Addresses || s.kind == VMM && s.space == memories
}
