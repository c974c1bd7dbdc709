// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/booking"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// stackDelay is how long the stack of an event may be on its way.
const stackDelay = 100 * time.Millisecond

// ooms hands what the event loop sees to Config.OOM.
type ooms struct {
	queue   chan OOM
	dropped atomic.Uint64

	// Guarded by Tracer.mu.
	waiting   ledger.Holders    // of places in queue
	droppedBy map[uint32]uint64 // by pid
	books     Ration            // what was taken for Config.OOM; it gets further ones without books
	latest    uint64            // when books were taken last, and how many sites they had
	sites     int
}

const (
	maxOOMs      = 4096    // of which a process has a share; one that PyTorch retries is three
	maxDroppedBy = 1 << 12 // processes
	booksBlocks  = 200_000 // live tensors that are read for books, in 0.1 s; with more the cache by site is as it was placed last

	// Books with more sites, 2 KB each, are not taken again so soon: ten of them would lie in the queue at a time.
	largeBooks   = 4096
	largeBooksIn = uint64(10 * time.Second)
)

// outOfMemory takes an error of a process. It never blocks.
func (t *Tracer) outOfMemory(turn *booking.Turn, p *processes.Process, o OOM) {
	if t.config.OOM == nil && t.config.Capture == nil {
		return
	}
	o.torch, o.User = t.tensors.Report(o.PID), p.User()
	if !t.ooms.waiting.Take(o.PID, o.User) {
		t.dropOOM(o.PID)
		return
	}
	o.Comm = untrusted.Clean(procfs.Comm(o.PID))
	// A process that gives up is about to free what it holds. What PyTorch's allocator gets from CUDA is mostly
	// not the end: it flushes its cache and tries again.
	if t.config.OOM != nil && (o.API == "torch" || !o.torch) {
		o.Books = t.booksOf(turn, &o)
	}
	select {
	case t.ooms.queue <- o:
	default:
		t.ooms.waiting.Give(o.PID)
		t.dropOOM(o.PID)
	}
}

// dropOOM counts one that Config.OOM is not told of.
func (t *Tracer) dropOOM(pid uint32) {
	t.ooms.dropped.Add(1)
	if _, known := t.ooms.droppedBy[pid]; known || len(t.ooms.droppedBy) < maxDroppedBy {
		t.ooms.droppedBy[pid]++
	}
}

// booksOf takes the books of what runs now, a few times a minute.
func (t *Tracer) booksOf(turn *booking.Turn, o *OOM) *ledger.Snapshot {
	at := o.Time
	if t.ooms.sites > largeBooks && at-t.ooms.latest < largeBooksIn {
		return nil
	}
	if !t.ooms.books.Allow(time.Unix(0, int64(at)), o.PID, o.User) {
		return nil
	}
	var blocks map[uint32][]ledger.Block
	if t.tensors.Count() <= booksBlocks {
		blocks = t.tensors.Blocks(t.tensors.Owners())
	}
	t.bringUpToDate(turn, blocks) // the totals of that moment came with the event
	books := turn.Running(at, time.Now().Add(-time.Duration(clock.Now()-at)))
	t.ooms.latest, t.ooms.sites = at, len(books.Sites)
	return books
}

// isRetried reports whether PyTorch's allocator got the error from CUDA: it flushes its cache
// and tries again. With a stack that ends early it is most likely the one who asked.
func (t *Tracer) isRetried(o OOM) bool {
	return o.API != "torch" && (t.stacks.Passes(o.Stack, callstack.IsTorchAllocator) || o.torch && !t.stacks.Whole(o.Stack))
}

// reportOOMs calls Config.OOM until ctx ends, and then for what is still in the queue.
func (t *Tracer) reportOOMs(ctx context.Context) {
	for {
		var o OOM
		select {
		case o = <-t.ooms.queue:
		default:
			select {
			case o = <-t.ooms.queue:
			case <-ctx.Done():
				return
			}
		}
		turn := t.desk.Take()
		t.ooms.waiting.Give(o.PID)
		turn.Done()
		if wait := stackDelay - time.Duration(clock.Now()-o.Time); wait > 0 && wait <= stackDelay {
			time.Sleep(wait)
		}
		if !t.isRetried(o) {
			t.tellOOM(o)
		}
	}
}

func (t *Tracer) tellOOM(o OOM) {
	defer t.defects.Recovered("a record of an out-of-memory error")
	if t.config.OOM != nil {
		t.config.OOM(o)
	}
	if t.config.Capture == nil {
		return
	}
	turn := t.desk.Take()
	defer turn.Done()
	turn.Apply(&ledger.Event{
		Op: ledger.OutOfMemory, Kind: o.Kind, PID: o.PID, Device: o.Device, Result: bpf.OutOfMemory, Time: o.Time,
		Size: o.Size, Stack: o.Stack, Context: o.Allocated, Handle: o.Reserved, API: o.API,
	})
}
