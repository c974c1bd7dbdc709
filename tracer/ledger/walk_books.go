// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// walks has the walks of one process.
type walks struct {
	list []Walked
	open *openWalk

	// Of the latest.
	sites  map[siteKey]*heldSite
	blocks []heldBlock // by address
	older  olderSet
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

// heldSite is what was live of a site at a walk, and how much of that each holder kept.
type heldSite struct {
	live, held uint64            // held: sum of parts
	parts      map[uint32]uint64 // by index in Held
}

// heldBlock is a block since the attach that a walk found a holder for.
type heldBlock struct {
	address, size uint64
	holder        uint32 // index into Held
}

// rankedBytes has bytes by rank.
type rankedBytes [foundRanks]uint64

// olderSet is what the latest walk took for memory from before the attach.
type olderSet struct {
	held   []rankedBytes // by index in Walked.Held
	gone   []rankedBytes // part of held whose addresses were given out since
	blocks []olderBlock  // by address
}

// olderBlock is one storage of an olderSet.
type olderBlock struct {
	address, size uint64
	holder        uint32 // index in Walked.Held
	rank          uint8
	gone          bool // its address was given out since
}

// find returns the storage at an address, or nil.
func (o *olderSet) find(address uint64) *olderBlock {
	n := len(o.blocks)
	if n == 0 || address < o.blocks[0].address || address > o.blocks[n-1].address {
		return nil
	}
	i, ok := slices.BinarySearchFunc(o.blocks, address, func(b olderBlock, address uint64) int { return cmp.Compare(b.address, address) })
	if !ok {
		return nil
	}
	return &o.blocks[i]
}

// leave notes that a storage was freed, since its address was given out again.
func (o *olderSet) leave(b *olderBlock) {
	if b == nil || b.gone {
		return
	}
	b.gone = true
	if int(b.holder) < len(o.gone) {
		o.gone[b.holder][b.rank] += b.size
	}
}

// gaveOut notes that an allocator gave out an address.
func (w *walks) gaveOut(address uint64) {
	if w.open != nil && len(w.open.given) < maxFreed {
		w.open.given[address] = struct{}{}
	}
	w.older.leave(w.older.find(address))
}

// olderLeft notes which blocks from before the attach an exact reading of the allocator no longer
// has.
func (w *walks) olderLeft(a *allocator) {
	for i := range w.older.blocks {
		if b := &w.older.blocks[i]; a.olderAt(b.address) == 0 {
			w.older.leave(b)
		}
	}
}

// gaveOutAll notes that blocks, sorted by address, were given out since the attach.
func (w *walks) gaveOutAll(list []Block) {
	at := 0
	for i := range w.older.blocks {
		b := &w.older.blocks[i]
		for at < len(list) && list[at].Address < b.address {
			at++
		}
		if at < len(list) && list[at].Address == b.address {
			w.older.leave(b)
		}
	}
}
