// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Snapshot returns a copy of the books, after Run or during it. It names the stacks of all sites,
// so that the warnings name files with missing or incomplete names.
func (t *Tracer) Snapshot() *ledger.Snapshot {
	return t.named(t.lastBooks(func(tx *sequence.Tx, s *ledger.Snapshot) {
		tx.AddStuck(s)
		tx.AddPeaks(s)
	}))
}

// Glance is Snapshot for a screen that is redrawn: without Snapshot.Stuck, which takes time in
// proportion to the live tensors, and with Snapshot.Highest since the Glance before.
func (t *Tracer) Glance() *ledger.Snapshot {
	return t.named(t.lastBooks(func(tx *sequence.Tx, s *ledger.Snapshot) { tx.AddHighest(s) }))
}

// Sums returns what is held now and what was lost, for a line that is redrawn. It takes no snapshot.
func (t *Tracer) Sums() ledger.Glance {
	tx := t.sequencer.Begin()
	sums := tx.Glance()
	tx.Done()
	for _, n := range t.lostFor() {
		sums.Lost += n
	}
	return sums
}

func (t *Tracer) named(s *ledger.Snapshot) *ledger.Snapshot {
	for i := range s.Sites {
		t.stacks.Stack(s.Sites[i].Stack)
	}
	for i := range s.Peaks {
		for k := range s.Peaks[i].Books.Sites {
			t.stacks.Stack(s.Peaks[i].Books.Sites[k].Stack)
		}
	}
	s.Warnings = append(s.Warnings, t.stacks.Warnings()...)
	for _, text := range t.unwind.Problems() {
		s.Warnings = append(s.Warnings, untrusted.Clean(text))
	}
	s.Warnings = append(s.Warnings, t.faults()...)
	if text := t.names.Warning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	return s
}

// lastBooks returns the books as of now, or as of the end of the session. more adds to them in the
// same transaction.
func (t *Tracer) lastBooks(more func(*sequence.Tx, *ledger.Snapshot)) *ledger.Snapshot {
	if t.ended == 0 {
		return t.takeBooks(t.readBooks(^uint64(0)), more)
	}
	tx := t.sequencer.Begin()
	defer tx.Done()
	tx.TakeAll()
	s := tx.Snapshot(t.ended, time.Now().Add(-time.Duration(clock.Now()-t.ended)))
	more(tx, s)
	return s
}

// takeBooks copies the books when they have every event before a moment. Readings made since then
// wait.
func (t *Tracer) takeBooks(moment uint64, more func(*sequence.Tx, *ledger.Snapshot)) *ledger.Snapshot {
	t.sequencer.Settle(moment, func() { _ = t.events.Flush() })
	t.reader.Settle()
	tx := t.sequencer.Begin()
	defer tx.Done()
	tx.TakeBefore(moment + 1)
	t.markSegments(tx) // again: the stacks of the latest events have come since
	s := tx.Snapshot(clock.Now(), time.Now())
	more(tx, s)
	return s
}

// readBooks has the books take what no event tells, as of the time that it returns: live blocks
// only if there are at most so many, since reading them takes long.
func (t *Tracer) readBooks(most uint64) uint64 {
	defer t.defects.Recovered(readingBooks)
	tx := t.sequencer.Begin()
	owners := t.tensors.Owners()
	few := most == ^uint64(0) || t.tensors.Count() <= most
	tx.Done()
	var blocks map[uint32][]ledger.Block
	if few {
		blocks = t.tensors.Blocks(owners)
	}
	tx = t.sequencer.Begin()
	defer tx.Done()
	t.tensors.Read(tx)
	time := clock.Now()
	tx.Read(readingBooks, time, func(tx *sequence.Tx) { t.bringUpToDate(tx, blocks) })
	return time
}

// bringUpToDate tells the books what is not told by events, except for the totals of allocators.
func (t *Tracer) bringUpToDate(tx *sequence.Tx, blocks map[uint32][]ledger.Block) {
	tx.Tell(t.stats())
	for pid, list := range blocks {
		tx.Tell(ledger.BlockList{PID: pid, Blocks: list})
	}
	t.markSegments(tx)
	if t.tensors.Unplaced() {
		tx.Tell(ledger.Warning{Text: "not all live tensors could be placed in their segments: PyTorch's cache may be too high"})
	}
	if t.config.WantTensors && !t.files.HaveTensors() {
		tx.Tell(ledger.Warning{Text: "no traced process has a PyTorch whose allocator reports tensors"})
	}
}

// runningBlocks is for how many live tensors runningBooks reads blocks, in 0.1 s; with more the
// cache by site is as it was placed last.
const runningBlocks = 200_000

// runningBooks returns the books of what runs, as of a time a moment ago. The totals of allocators
// of that moment came with the event. It begins to look for the holders in the process with the pid,
// and returns a function that waits for them, or nil.
func (t *Tracer) runningBooks(tx *sequence.Tx, pid uint32, at uint64) (s *ledger.Snapshot, walked func()) {
	var blocks map[uint32][]ledger.Block
	if t.tensors.Count() <= runningBlocks {
		blocks = t.tensors.Blocks(t.tensors.Owners())
	}
	if t.walker != nil {
		walked = t.walker.Now(tx, pid, at, blocks[pid])
	}
	t.bringUpToDate(tx, blocks)
	s = tx.Running(at, time.Now().Add(-time.Duration(clock.Now()-at)))
	tx.AddStuck(s)
	return s, walked
}

// blocksOf returns the live blocks that PyTorch's allocator gave a process since the attach.
func (t *Tracer) blocksOf(pid uint32) []ledger.Block {
	tx := t.sequencer.Begin()
	owners := t.tensors.Owners().Of(pid)
	tx.Done()
	return t.tensors.Blocks(owners)[pid]
}

// LostOOMs returns how many errors did not reach Config.OOM, since there were too many at once, in
// all and, as far as there is room, by pid. Some of them may have been retried.
func (t *Tracer) LostOOMs() (all uint64, by map[uint32]uint64) { return t.ooms.Lost() }

// UnwindTableBytes returns how much kernel memory unwind tables take besides the maps that this
// process has open.
func (t *Tracer) UnwindTableBytes() uint64 { return t.unwind.TableBytes() }

// UnwindRooms returns how much is taken of the kernel's tables that unwind tables share, how often a
// file had no room since the start, and a sentence about a process that lacks tables now, or "".
func (t *Tracer) UnwindRooms() (list []unwind.Room, refused uint64, example string) {
	list, refused, example = t.unwind.Rooms()
	return list, refused, untrusted.Clean(example)
}
