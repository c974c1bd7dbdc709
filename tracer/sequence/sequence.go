// SPDX-License-Identifier: Apache-2.0

// Package sequence applies events, readings and warnings to the ledger and the capture in one
// order. Events come from the goroutine that reads their ring, readings and warnings from others.
package sequence

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
)

// Sequencer owns the ledger. Any goroutine may call its methods; Begin waits until no other
// goroutine has a transaction, which is never for long: nobody who has one may wait for NVML, for a
// ring or for another process's memory. A transaction comes before every other lock of the tracer:
// with another one held, Begin must not be called.
type Sequencer struct {
	defects *panics.List
	running atomic.Bool // events are being read: readings wait for those before them

	mu      sync.Mutex // guards what follows
	ledger  *ledger.Ledger
	capture ledger.Books // nil: none
	follow  ledger.Books // see Follow
	waiting []reading    // by time
	upTo    uint64       // all events before then are booked
}

// New returns a Sequencer for a ledger and, unless it is nil, a capture that is told the same in
// the same order.
func New(books *ledger.Ledger, capture ledger.Books, panics *panics.List) *Sequencer {
	return &Sequencer{ledger: books, capture: capture, defects: panics}
}

// Follow has other books told the same, after the ledger. It must be called before anything is
// booked; nil is none.
func (s *Sequencer) Follow(books ledger.Books) { s.follow = books }

// Tx is a transaction: the right to book. Its methods are for the goroutine that began it, until
// Done: everything that is booked in one transaction comes between the events before and after it.
type Tx Sequencer

// Begin waits for a transaction.
func (s *Sequencer) Begin() *Tx {
	s.mu.Lock()
	return (*Tx)(s)
}

// Done ends the transaction.
func (t *Tx) Done() { t.mu.Unlock() }

// Tell tells the books something in a transaction of its own.
func (s *Sequencer) Tell(in ledger.Input) {
	tx := s.Begin()
	defer tx.Done()
	tx.Tell(in)
}

// Warn tells the books a sentence about a process, or with pid 0 about none.
func (s *Sequencer) Warn(pid uint32, text string) { s.Tell(ledger.Warning{PID: pid, Text: text}) }

// Apply books an event: the last step of its way to the ledger.
func (t *Tx) Apply(e *ledger.Event) {
	if t.capture != nil {
		t.capture.Apply(e)
	}
	t.ledger.Apply(e)
	if t.follow != nil {
		t.follow.Apply(e)
	}
}

// Tell tells the books anything else.
func (t *Tx) Tell(in ledger.Input) {
	if t.capture != nil {
		t.capture.Tell(in) // first: the list of a BlockList is the ledger's from then on
	}
	t.ledger.Tell(in)
	if t.follow != nil {
		t.follow.Tell(in)
	}
}

// Opening tells other books what makes them equal to the ledger: see ledger.Ledger.Opening. It is
// for the capture, which may call it while it is told something, before it takes that.
func (s *Sequencer) Opening(to ledger.Books) { s.ledger.Opening(to) }

// Checkpoint is Opening within a capture: see ledger.Ledger.Checkpoint.
func (s *Sequencer) Checkpoint(to ledger.Books, most int) bool { return s.ledger.Checkpoint(to, most) }

// MarkSegments tells the books which driver allocations PyTorch's allocator made: those at the
// stacks for which is returns true. The capture is told the answers: a stack that comes too late
// for one question must be so in a replay too.
func (t *Tx) MarkSegments(is func(stack uint64) bool) {
	answers := map[uint64]bool{}
	var segments []uint64
	t.ledger.MarkSegments(func(stack uint64) bool {
		yes, known := answers[stack]
		if !known {
			yes = is(stack)
			answers[stack] = yes
			if yes {
				segments = append(segments, stack)
			}
		}
		return yes
	})
	if t.capture != nil && len(segments) > 0 {
		t.capture.Tell(ledger.Segments(segments))
	}
}

// Snapshot returns a copy of the books as of now, in ns of CLOCK_MONOTONIC.
func (t *Tx) Snapshot(now uint64, wall time.Time) *ledger.Snapshot {
	return t.ledger.Snapshot(now, wall)
}

// Running is Snapshot without the processes that have ended.
func (t *Tx) Running(now uint64, wall time.Time) *ledger.Snapshot {
	return t.ledger.Running(now, wall)
}

// Glance returns sums of the books: see ledger.Ledger.Glance.
func (t *Tx) Glance() ledger.Glance { return t.ledger.Glance() }

// Fold has sites of all processes with fewer live bytes lose their stack, and returns how many did:
// see ledger.Fold.
func (t *Tx) Fold(below uint64) uint64 {
	before := t.ledger.Folded()
	t.Tell(ledger.Fold{Below: below})
	return t.ledger.Folded() - before
}

// HeldOrdinals returns the GPUs on which a process held memory while NVML was read: see
// ledger.Ledger.HeldOrdinals.
func (t *Tx) HeldOrdinals(pid uint32) []int32 { return t.ledger.HeldOrdinals(pid) }

// DriverMemory returns live allocations of a process: see ledger.Ledger.DriverMemory.
func (t *Tx) DriverMemory(pid uint32, most int) []ledger.Block {
	return t.ledger.DriverMemory(pid, most)
}

// TensorBlocks returns live tensors of a process: see ledger.TensorBlocks.
func (t *Tx) TensorBlocks(pid uint32) (list []ledger.TensorBlock, traced bool) {
	return ledger.TensorBlocks(t.ledger, pid)
}

// Measured returns the GPU memory of a process: see ledger.Ledger.Measured.
func (t *Tx) Measured(pid uint32) uint64 { return t.ledger.Measured(pid) }

// AddStuck adds what keeps PyTorch's caches from the driver to the snapshot that was taken in this
// transaction: see ledger.Ledger.AddStuck.
func (t *Tx) AddStuck(s *ledger.Snapshot) { t.ledger.AddStuck(s) }

// AddPeaks adds what processes that have ended held at their peak to the snapshot that was taken in
// this transaction: see ledger.Ledger.AddPeaks.
func (t *Tx) AddPeaks(s *ledger.Snapshot) { t.ledger.AddPeaks(s) }

// AddHighest adds the books of when each process had most since it was called last: see
// ledger.Ledger.AddHighest.
func (t *Tx) AddHighest(s *ledger.Snapshot) { t.ledger.AddHighest(s) }

// AddWalk adds the walks of a process to a snapshot that is older: see ledger.Ledger.AddWalk.
func (t *Tx) AddWalk(s *ledger.Snapshot, pid uint32) { t.ledger.AddWalk(s, pid) }

// BeginEvents has readings wait for the events before them, from now on. Whoever calls it reads the
// ring, and calls RingWasEmpty when there is nothing more in it, until EndEvents.
func (s *Sequencer) BeginEvents() { s.running.Store(true) }

// EndEvents has readings be taken at once, from now on.
func (s *Sequencer) EndEvents() { s.running.Store(false) }

// RingWasEmpty notes that all events that were in the ring at a time are booked. The time must be
// taken before the ring is found empty: events that come while the caller waits for its transaction
// are not booked yet.
func (s *Sequencer) RingWasEmpty(at uint64) {
	tx := s.Begin()
	defer tx.Done()
	tx.Passed(at - inFlight)
}

// settleWithin is how long Settle waits; events are mostly read within 10 ms.
const settleWithin = 200 * time.Millisecond

// Settle waits, at most 0.2 s, until the events before a moment are booked, and the readings too.
// It calls flush to wake the goroutine that reads the ring, which sleeps when there is nothing to
// read.
func (s *Sequencer) Settle(moment uint64, flush func()) {
	for end := time.Now().Add(settleWithin); s.running.Load() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		tx := s.Begin()
		done := tx.upTo > moment
		tx.Done()
		if done {
			return
		}
		flush()
	}
}
