// SPDX-License-Identifier: Apache-2.0

// Package oom finds the out-of-memory errors that end programs among those that CUDA and PyTorch's
// allocator report, and limits how many are recorded.
package oom

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/oom/oomevent"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/ratelimit"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Error is an allocation that failed for lack of memory. What PyTorch's allocator gets after it has
// emptied its cache is none.
type Error struct {
	oomevent.Event
	User uint32 // as in ledger.Process

	// AddHolders adds to a snapshot who keeps the memory of the process. It takes as long as a
	// walk, at most some seconds. It is nil unless Record is set, and where holders are not looked
	// for.
	AddHolders func(s *ledger.Snapshot)

	Record bool             // it is within the limit of records
	Books  *ledger.Snapshot // as of this error, for its receiver to keep; nil: take a snapshot, which is younger

	walked func() // waits for the walk; may be nil
	torch  bool   // an event came from PyTorch's allocator in the process
}

// isFinal reports whether nothing is known to be tried after the error. What PyTorch's allocator
// gets from CUDA is mostly not the end: it flushes its cache and tries again.
func (e *Error) isFinal() bool { return e.API == "torch" || !e.torch }

func (e *Error) at() time.Time { return time.Unix(0, int64(e.Time)) }

// Stacks is what is known of stacks, as in stacks.Store.
type Stacks interface {
	Passes(id uint64, is func(file string) bool) bool
	Whole(id uint64) bool
}

// Options is what a Queue needs.
type Options struct {
	Tell      func(Error) // gets each error, from Run; may be nil
	Capture   bool        // there is a capture: the books get each error also without Tell
	Sequencer *sequence.Sequencer
	Defects   *panics.List
	Stacks    Stacks

	HasTorch func(pid uint32) bool // an event came from PyTorch's allocator in the process; must not block
	// Books returns the books of processes that run, as of a time a moment ago. It is called in a
	// turn, and may take 0.1 s. Walked waits, at most 10 s, for a walk of the process that is as of
	// the same time; nil: there is none.
	Books func(tx *sequence.Tx, pid uint32, at uint64) (s *ledger.Snapshot, walked func())
	// Walk looks for the holders of a process and has them booked; nil: holders are not looked for.
	Walk func(pid uint32)
}

// Queue hands errors from the goroutine that reads the events ring, which calls Add and never
// waits, to the one that calls Run. Any goroutine may call Lost.
type Queue struct {
	Options
	queue chan Error

	mu      sync.Mutex         // guards what follows, never while something is called
	waiting quota.ByProcess    // places in queue, by process and user
	limiter *ratelimit.Limiter // of records
	latest  uint64             // when books were taken last, and how many sites they had
	sites   int                //
	lost    uint64             // errors without room
	lostBy  map[uint32]uint64  // likewise, by pid
}

const (
	maxWaiting = 4096    // of which a process has a share; an error that PyTorch retries is three
	maxLostBy  = 1 << 12 // processes

	// Books with more sites, 2 KB each, are not taken again so soon: ten of them may wait at a
	// time.
	largeBooks   = 4096
	largeBooksIn = uint64(10 * time.Second)
)

// Records is how many errors are recorded in a minute.
var Records = ratelimit.Limits{All: 10, OfProcess: 3, OfUser: 8}

// NewQueue returns an empty Queue.
func NewQueue(o Options) *Queue {
	return &Queue{Options: o, queue: make(chan Error, maxWaiting), waiting: quota.NewByProcess(maxWaiting), lostBy: map[uint32]uint64{}, limiter: ratelimit.New(Records)}
}

// Add takes an error of a process; tx is the caller's. The first errors of a process have the
// books of that moment with them, since a process that gives up is about to free what it holds.
func (q *Queue) Add(tx *sequence.Tx, e Error) {
	if q.Tell == nil && !q.Capture {
		return
	}
	e.torch = q.HasTorch(e.PID)
	if !q.reserve(e.PID, e.User) {
		return
	}
	e.Comm = untrusted.Clean(procfs.Comm(e.PID))
	if q.Tell != nil && e.isFinal() && q.allow(&e) {
		e.Books, e.walked = q.Books(tx, e.PID, e.Time)
		q.mu.Lock()
		q.latest, q.sites = e.Time, len(e.Books.Sites)
		q.mu.Unlock()
	}
	q.queue <- e // it has its place
}

// reserve takes a place, or counts an error without one.
func (q *Queue) reserve(pid, user uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.Take(pid, user) {
		return true
	}
	q.lost++
	if _, known := q.lostBy[pid]; known || len(q.lostBy) < maxLostBy {
		q.lostBy[pid]++
	}
	return false
}

// allow decides whether an error is recorded, and reports whether books are to be taken for it.
func (q *Queue) allow(e *Error) (books bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.Record = q.limiter.Allow(e.at(), e.PID, e.User)
	return e.Record && (q.sites <= largeBooks || e.Time-q.latest >= largeBooksIn)
}

// Lost returns how many errors did not reach Tell, since there were too many at once, in all and,
// as far as there is room, by pid. Some of them may have been retried.
func (q *Queue) Lost() (all uint64, by map[uint32]uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost, maps.Clone(q.lostBy)
}

// ForgetProcesses drops the counts by pid of processes that have ended. The sum keeps them.
func (q *Queue) ForgetProcesses(ended map[uint32]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.lostBy, func(pid uint32, _ uint64) bool { return ended[pid] })
}

// stackDelay is how long the stack of an event may be on its way.
const stackDelay = 100 * time.Millisecond

// Run hands errors to Tell until ctx ends, and then those that are still in the queue.
func (q *Queue) Run(ctx context.Context) {
	for {
		var e Error
		select {
		case e = <-q.queue:
		default:
			select {
			case e = <-q.queue:
			case <-ctx.Done():
				return
			}
		}
		q.mu.Lock()
		q.waiting.Give(e.PID)
		q.mu.Unlock()
		if wait := stackDelay - time.Duration(clock.Now()-e.Time); wait > 0 && wait <= stackDelay {
			time.Sleep(wait)
		}
		q.finish(&e)
	}
}

// finish hands an error to Tell, unless it was retried.
func (q *Queue) finish(e *Error) {
	retried := q.isRetried(e)
	q.mu.Lock()
	switch {
	case retried && e.Record:
		q.limiter.Return(e.at(), e.PID)
	case !retried && !e.isFinal():
		e.Record = q.limiter.Allow(e.at(), e.PID, e.User)
	}
	q.mu.Unlock()
	if !retried {
		q.publish(e)
	}
}

// isRetried reports whether PyTorch's allocator got the error from CUDA: it flushes its cache and
// tries again. With a stack that ends early it most likely was the caller.
func (q *Queue) isRetried(e *Error) bool {
	return e.API != "torch" && (q.Stacks.Passes(e.Stack, callstack.IsTorchAllocator) || e.torch && !q.Stacks.Whole(e.Stack))
}

// adder returns a function that adds to a snapshot who keeps the memory: as of the error if a walk
// began then, else as of when it is called.
func (q *Queue) adder(e *Error) func(s *ledger.Snapshot) {
	pid, walked := e.PID, e.walked
	if walked == nil && q.Walk == nil {
		return nil
	}
	return func(s *ledger.Snapshot) {
		if walked != nil {
			walked()
		} else {
			q.Walk(pid)
		}
		tx := q.Sequencer.Begin()
		defer tx.Done()
		tx.AddWalk(s, pid)
	}
}

// publish hands an error to Tell, and books it.
func (q *Queue) publish(e *Error) {
	defer q.Defects.Recovered("a record of an out-of-memory error")
	if q.Tell != nil {
		if e.Record {
			e.AddHolders = q.adder(e)
		}
		q.Tell(*e)
	}
	tx := q.Sequencer.Begin()
	defer tx.Done()
	tx.Apply(&ledger.Event{
		Op: ledger.OutOfMemory, Kind: e.Kind, PID: e.PID, Device: e.Device, Result: bpf.OutOfMemory, Time: e.Time,
		Size: e.Size, Stack: e.Stack, Context: e.Allocated, Handle: e.Reserved, API: e.API,
	})
}
