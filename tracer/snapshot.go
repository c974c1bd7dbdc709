// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/booking"
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
	t.desk.Settle(moment, func() { _ = t.events.Flush() })
	t.desk.Take()
	defer t.turn.Done()
	t.turn.TakeBefore(moment + 1)
	return t.turn.Snapshot(clock.Now(), time.Now())
}

// readBooks has the books take what is not told by events, as of the time that it returns: live blocks only if there
// are at most so many, since to walk them takes long.
func (t *Tracer) readBooks(most uint64) uint64 {
	defer t.defects.Recovered(readingBooks)
	t.desk.Take()
	owners := t.blockOwners()
	few := most == ^uint64(0) || t.liveBlocks() <= most
	t.turn.Done()
	var blocks map[uint32][]ledger.Block
	if few {
		blocks = t.blocksOf(owners)
	}
	t.desk.Take()
	defer t.turn.Done()
	t.readTensors()
	time := clock.Now()
	t.turn.Read(readingBooks, time, func(*booking.Turn) { t.bringUpToDate(blocks) })
	return time
}

// bringUpToDate tells the books what is not told by events, but for the totals of allocators; in a turn.
func (t *Tracer) bringUpToDate(blocks map[uint32][]ledger.Block) {
	t.turn.Tell(t.stats())
	for pid, list := range blocks {
		t.turn.Tell(ledger.BlockList{PID: pid, Blocks: list})
	}
	t.markSegments()
	if t.blocksUnread.Load() {
		t.turn.Tell(ledger.Warning{Text: "not all live tensors could be placed in their segments: PyTorch's cache may be too high"})
	}
	if t.config.WantTensors && !t.files.HaveTensors() {
		t.turn.Tell(ledger.Warning{Text: "no traced process has a PyTorch whose allocator reports tensors"})
	}
}
