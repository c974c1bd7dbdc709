// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Snapshot takes a copy of the books, after Run or during it. It names the
// stacks of all sites, so that the warnings say which files have no or incomplete names.
func (t *Tracer) Snapshot() *ledger.Snapshot {
	s := t.takeBooks(t.readBooks(^uint64(0)))
	for i := range s.Sites {
		t.stacks.Stack(s.Sites[i].Stack)
	}
	s.Warnings = append(s.Warnings, t.stacks.Warnings()...)
	for _, text := range t.unwind.Problems() {
		s.Warnings = append(s.Warnings, untrusted.Clean(text))
	}
	s.Warnings = append(s.Warnings, t.faults()...)
	return s
}

// takeBooks copies the books when they have all that came before a moment. Readings that were made since wait on.
func (t *Tracer) takeBooks(moment uint64) *ledger.Snapshot {
	t.settle(moment)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readings.takeBefore(moment + 1)
	return t.ledger.Snapshot(clock.Now(), time.Now())
}

// readBooks has the books take what is not told by events, as of the time that it returns: live blocks only if there
// are at most so many, since to walk them takes long.
func (t *Tracer) readBooks(most uint64) uint64 {
	defer t.defects.Recovered(readingBooks)
	t.mu.Lock()
	owners := t.blockOwners()
	few := most == ^uint64(0) || t.liveBlocks() <= most
	t.mu.Unlock()
	var blocks map[uint32][]ledger.Block
	if few {
		blocks = t.blocksOf(owners)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readTensors()
	time := clock.Now()
	t.read(readingBooks, time, func() { t.bringUpToDate(blocks) })
	return time
}

// bringUpToDate tells the books what is not told by events, but for the totals of allocators; t.mu is held.
func (t *Tracer) bringUpToDate(blocks map[uint32][]ledger.Block) {
	t.books.Tell(t.stats())
	for pid, list := range blocks {
		t.books.Tell(ledger.BlockList{PID: pid, Blocks: list})
	}
	t.markSegments()
	if t.blocksUnread.Load() {
		t.books.Tell(ledger.Warning{Text: "not all live tensors could be placed in their segments: PyTorch's cache may be too high"})
	}
	if t.config.WantTensors && !t.tensorsProbed.Load() {
		t.books.Tell(ledger.Warning{Text: "no traced process has a PyTorch whose allocator reports tensors"})
	}
}
