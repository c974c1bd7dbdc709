// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/allocscan"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/torchalloc"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// readingBooks is what a panic costs, in words.
const readingBooks = "a look at the books"

// snapshots copies the books, and has them brought up to date before with what no event tells. Any
// goroutine may call its methods.
type snapshots struct {
	sequencer *sequence.Sequencer
	defects   *panics.List
	names     *processes.Names
	usage     *gpuusage.Monitor
	tensors   *torchalloc.Allocators
	shares    *shares.Shares
	stacks    *stacks.Store
	reader    *stacks.Reader
	unwind    *unwind.Unwinder
	events    *eventReader
	discovery *discovery
	losses    *losses

	wantTensors bool
	walker      *heapscan.Walker                   // nil: no walks
	scanner     *allocscan.Scanner                 // nil: allocators are not read
	skip        atomic.Pointer[context.CancelFunc] // of the walks at the end; nil: there are none
	ended       uint64                             // moment of the books before the last walks; 0: there were none, or they are to come
}

func (b *snapshots) named(s *ledger.Snapshot) *ledger.Snapshot {
	for i := range s.Sites {
		b.stacks.Stack(s.Sites[i].Stack)
	}
	for i := range s.Peaks {
		for k := range s.Peaks[i].Books.Sites {
			b.stacks.Stack(s.Peaks[i].Books.Sites[k].Stack)
		}
	}
	s.Warnings = append(s.Warnings, b.stacks.Warnings()...)
	for _, text := range b.unwind.Problems() {
		s.Warnings = append(s.Warnings, untrusted.Clean(text))
	}
	s.Warnings = append(s.Warnings, b.faults()...)
	if text := b.names.Warning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	return s
}

// faults returns sentences on what the tracer and its kernel half counted and no figure of the
// ledger shows.
func (b *snapshots) faults() []string {
	list := b.losses.faults()
	for _, text := range []string{b.discovery.unseen.Text(), b.usage.Silence(b.discovery.begin.Load()), b.shares.Text()} {
		if text != "" {
			list = append(list, text)
		}
	}
	return append(list, b.defects.Warnings()...)
}

// last returns the books as of now, or as of the end of the session. more adds to them in the
// same transaction.
func (b *snapshots) last(more func(*sequence.Tx, *ledger.Snapshot)) *ledger.Snapshot {
	if b.ended == 0 {
		return b.copy(b.read(^uint64(0)), more)
	}
	tx := b.sequencer.Begin()
	defer tx.Done()
	tx.TakeAll()
	s := tx.Snapshot(b.ended, time.Now().Add(-time.Duration(clock.Now()-b.ended)))
	more(tx, s)
	return s
}

// copy copies the books when they have every event before a moment. Readings made since then
// wait.
func (b *snapshots) copy(moment uint64, more func(*sequence.Tx, *ledger.Snapshot)) *ledger.Snapshot {
	b.sequencer.Settle(moment, b.events.flush)
	b.reader.Settle()
	tx := b.sequencer.Begin()
	defer tx.Done()
	tx.TakeBefore(moment + 1)
	b.markSegments(tx) // again: the stacks of the latest events have come since
	s := tx.Snapshot(clock.Now(), time.Now())
	more(tx, s)
	return s
}

// read has the books take what no event tells, as of the time that it returns: live blocks
// only if there are at most so many, since reading them takes long.
func (b *snapshots) read(most uint64) uint64 {
	defer b.defects.Recovered(readingBooks)
	tx := b.sequencer.Begin()
	owners := b.tensors.Owners()
	few := most == ^uint64(0) || b.tensors.Count() <= most
	tx.Done()
	var blocks map[uint32][]ledger.Block
	if few {
		if b.scanner != nil {
			b.scanner.Refresh()
		}
		blocks = b.tensors.Blocks(owners)
	}
	tx = b.sequencer.Begin()
	defer tx.Done()
	b.tensors.Read(tx)
	time := clock.Now()
	tx.Read(readingBooks, time, func(tx *sequence.Tx) { b.bringUpToDate(tx, blocks) })
	return time
}

// bringUpToDate tells the books what is not told by events, except for the totals of allocators.
func (b *snapshots) bringUpToDate(tx *sequence.Tx, blocks map[uint32][]ledger.Block) {
	tx.Tell(b.losses.stats())
	for pid, list := range blocks {
		tx.Tell(ledger.BlockList{PID: pid, Blocks: list})
	}
	b.markSegments(tx)
	if b.tensors.Unplaced() {
		tx.Tell(ledger.Warning{Text: "not all live tensors could be placed in their segments: PyTorch's cache may be too high"})
	}
	if b.wantTensors && !b.discovery.files.HaveTensors() {
		tx.Tell(ledger.Warning{Text: "no traced process has a PyTorch whose allocator reports tensors"})
	}
}

// runningBlocks is for how many live tensors runningBooks reads blocks, in 0.1 s; with more the
// cache by site is as it was placed last.
const runningBlocks = 200_000

// running returns the books of what runs, as of a time a moment ago. The totals of allocators of
// that moment came with the event. It begins to look for the holders in the process with the pid,
// and returns a function that waits for them, or nil.
func (b *snapshots) running(tx *sequence.Tx, pid uint32, at uint64) (s *ledger.Snapshot, walked func()) {
	var blocks map[uint32][]ledger.Block
	if b.tensors.Count() <= runningBlocks {
		blocks = b.tensors.Blocks(b.tensors.Owners())
	}
	if b.walker != nil {
		walked = b.walker.Now(tx, pid, at, blocks[pid])
	}
	if b.scanner != nil {
		walked = both(b.scanner.Now(pid), walked)
	}
	b.bringUpToDate(tx, blocks)
	s = tx.Running(at, time.Now().Add(-time.Duration(clock.Now()-at)))
	tx.AddStuck(s)
	return s, walked
}

// both returns a function that waits for two; the second may be nil.
func both(a, b func()) func() {
	return func() {
		a()
		if b != nil {
			b()
		}
	}
}

// blocksOf returns the live blocks that PyTorch's allocator gave a process since the attach.
func (b *snapshots) blocksOf(pid uint32) []ledger.Block {
	tx := b.sequencer.Begin()
	owners := b.tensors.Owners().Of(pid)
	tx.Done()
	return b.tensors.Blocks(owners)[pid]
}

// tablesOf returns what the reports of a process's allocators came to by now.
func (b *snapshots) tablesOf(pid uint32, patience time.Duration) []allocscan.Table {
	list := b.tensors.Tables(pid, patience)
	tables := make([]allocscan.Table, len(list))
	for i := range list {
		tables[i] = allocscan.Table(list[i])
	}
	return tables
}

// markSegments tells the books which driver allocations PyTorch's allocator made.
func (b *snapshots) markSegments(tx *sequence.Tx) {
	tx.MarkSegments(func(stack uint64) bool { return b.stacks.Passes(stack, callstack.IsTorchAllocator) })
}

// A capture gets the state that otherwise only a snapshot reads every captureInterval, so that it
// can show any moment. With more than maxCaptured tensors their blocks are left out, because
// walking them takes long.
const (
	captureInterval = 10 * time.Second
	maxCaptured     = 200_000
)

// feed reads the state for the capture until ctx ends.
func (b *snapshots) feed(ctx context.Context) {
	clock.Every(ctx, captureInterval, func() { b.read(maxCaptured) })
}

// walkLast takes the books as of the end, and then looks for holders once more: that may take
// seconds, in which events are not booked any more.
func (b *snapshots) walkLast(ctx context.Context) {
	if b.scanner != nil {
		b.scanner.Last(context.WithoutCancel(ctx))
	}
	if b.walker == nil {
		return
	}
	b.ended = b.read(^uint64(0))
	if ctx.Err() != nil { // Ctrl-C has ended tracing, not the walks
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.skip.Store(&cancel)
	defer b.skip.Store(nil)
	b.walker.Last(ctx)
}

// skipWalks ends the walks for holders at the end, if they are under way and nobody has ended them
// yet. It reports whether it did.
func (b *snapshots) skipWalks() bool {
	cancel := b.skip.Swap(nil)
	if cancel == nil {
		return false
	}
	(*cancel)()
	return true
}
