// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Snapshot returns a copy of the books, after Run or during it. It names the stacks of all sites,
// so that the warnings name files with missing or incomplete names.
func (t *Tracer) Snapshot() *ledger.Snapshot {
	return t.snapshots.named(t.snapshots.last(func(tx *sequence.Tx, s *ledger.Snapshot) {
		tx.AddStuck(s)
		tx.AddPeaks(s)
	}))
}

// Glance is Snapshot for a screen that is redrawn: without Snapshot.Stuck, which takes time in
// proportion to the live tensors, and with Snapshot.Highest since the Glance before.
func (t *Tracer) Glance() *ledger.Snapshot {
	return t.snapshots.named(t.snapshots.last(func(tx *sequence.Tx, s *ledger.Snapshot) { tx.AddHighest(s) }))
}

// Sums returns what is held now and what was lost, for a line that is redrawn. It takes no
// snapshot.
func (t *Tracer) Sums() ledger.Glance {
	tx := t.sequencer.Begin()
	sums := tx.Glance()
	tx.Done()
	for _, n := range t.losses.byReason() {
		sums.Lost += n
	}
	return sums
}

// TensorBlocks returns the live tensors of a process that have an event of their own, as of now.
// traced is false if the books do not have the process.
func (t *Tracer) TensorBlocks(pid uint32) (list []ledger.TensorBlock, traced bool) {
	t.sequencer.Settle(clock.Now(), t.snapshots.events.flush)
	t.snapshots.reader.Settle()
	tx := t.sequencer.Begin()
	defer tx.Done()
	return tx.TensorBlocks(pid)
}

// LostOOMs returns how many errors did not reach Config.OOM, since there were too many at once, in
// all and, as far as there is room, by pid. Some of them may have been retried.
func (t *Tracer) LostOOMs() (all uint64, by map[uint32]uint64) { return t.ooms.Lost() }

// UnwindTableBytes returns how much kernel memory unwind tables take besides the maps that this
// process has open.
func (t *Tracer) UnwindTableBytes() uint64 { return t.unwind.TableBytes() }

// UnwindRooms returns how much is taken of the kernel's tables that unwind tables share, how often
// a file had no room since the start, and a sentence about a process that lacks tables now, or "".
func (t *Tracer) UnwindRooms() (list []unwind.Room, refused uint64, example string) {
	list, refused, example = t.unwind.Rooms()
	return list, refused, untrusted.Clean(example)
}
