// SPDX-License-Identifier: Apache-2.0

// Package heapscan walks the memory of traced processes to find who keeps their GPU memory, and
// books what it finds: when a process is first traced, at the end, and on request in between.
package heapscan

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Options is what a Walker needs.
type Options struct {
	Every     time.Duration // between walks of a process; 0: ever longer, see leastPause
	MaxMemory uint64        // bytes to copy of a process: see holders.Options; 0: DefaultMemory
	HideNames bool          // likewise
	LastTime  time.Duration // of all walks at the end, see Last; 0: DefaultLastTime

	Progress func(done, of int) // is told of the walks at the end; nil: nobody
	Note     func(string)       // is told of each walk, for --verbose; nil: nobody

	Sequencer *sequence.Sequencer
	Defects   *panics.List
	Traced    func() []uint32                 // processes, in any order
	UserOf    func(pid uint32) uint32         // its user, as in ledger.Process
	HasTorch  func(pid uint32) bool           // an event came from PyTorch's allocator in the process
	Blocks    func(pid uint32) []ledger.Block // live blocks of PyTorch's allocator since the attach
	Mark      func(tx *sequence.Tx)           // marks which allocations are segments of PyTorch
	Flush     func()                          // has the goroutine that reads events book what is in its ring
}

// Walker walks processes. Any goroutine may call its methods.
type Walker struct {
	Options
	one   sync.Mutex // held while a process is read, so that their copies do not add up
	visit func(ctx context.Context, pid uint32)

	mu     sync.Mutex // guards what follows
	known  map[uint32]*target
	urgent quota.ByProcess // walks by Now under way
}

// target is a process that is walked.
type target struct {
	first time.Time // when it was first seen
	tried int       // walks in a row that found nothing
	found int       // walks that found holders
	next  time.Time // when to walk it again
	never bool      // it has no Python that can be read
}

const (
	// A walk of a process without tensors is tried again after firstPause, then after twice as
	// long, up to lastPause.
	firstPause = 2 * time.Second
	lastPause  = time.Minute

	// Where Options.Every is 0, a process is walked again after as long as it is known, at least
	// leastPause, and at least costPause times as long as the walk took: one that ends by itself
	// has a walk of its later half, which costs little. Growth takes some walks to show, so up to
	// soonWalks in the first soonTime have the pauses soonPause and soonCost.
	leastPause = 3 * time.Second
	costPause  = 20
	soonWalks  = 4
	soonPause  = 2 * time.Second
	soonCost   = 8
	soonTime   = time.Minute

	// What one walk takes at most: of a processor, of time in which its reads wait for the process,
	// and on the clock.
	walkTime    = 10 * time.Second
	walkWaiting = 10 * time.Second
	walkTotal   = time.Minute

	// DefaultMemory is the most that a walk of a session copies by default.
	DefaultMemory = 256 << 20

	// Walks of processes that run out of memory at the same time, shared by quota.Quota, and how
	// long each is waited for.
	mostUrgent = 4
	urgentTime = walkTime

	// With more processes to walk than this, the walker rests after each as long as it took, and
	// looks again after so many which ones to walk.
	manyAtOnce = 8

	// How often a process is read that is known to have tensors, if none is found.
	tries = 3

	// What a walk keeps of an object is less than this.
	bytesPerObject = 64

	mostAllocations = 1 << 16 // of one walk

	// nice is how much less urgent than the traced processes the search in a copy is.
	nice = 5
)

var limits = deadline.Limits{Processor: walkTime, Waiting: walkWaiting, Total: walkTotal}

// New returns a Walker.
func New(o Options) *Walker {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	if o.LastTime == 0 {
		o.LastTime = DefaultLastTime
	}
	w := &Walker{Options: o, known: map[uint32]*target{}, urgent: quota.NewByProcess(mostUrgent)}
	w.visit = w.walk
	return w
}

// Run walks each process soon after it is traced, and again as Options.Every says, until ctx ends.
func (w *Walker) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		pids := w.due(time.Now())
		for _, pid := range pids[:min(len(pids), manyAtOnce)] {
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			w.visit(ctx, pid)
			w.postpone(pid, began)
			if len(pids) > manyAtOnce {
				sleep(ctx, time.Since(began))
			}
		}
		if len(pids) > manyAtOnce {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// due returns the processes to walk now, the users in turn and of each the one first that waits
// longest, and forgets those that are not traced any more.
func (w *Walker) due(now time.Time) (pids []uint32) {
	traced := w.Traced()
	slices.Sort(traced)
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range w.known {
		if _, is := slices.BinarySearch(traced, pid); !is {
			delete(w.known, pid)
		}
	}
	for _, pid := range traced {
		t := w.known[pid]
		if t == nil {
			t = &target{first: now}
			w.known[pid] = t
		}
		if w.worthwhile(pid, t) && !now.Before(t.next) {
			pids = append(pids, pid)
		}
	}
	slices.SortStableFunc(pids, func(a, b uint32) int { return w.known[a].next.Compare(w.known[b].next) })
	return w.inTurn(pids)
}

// postpone has a process wait whose walk did not end as it should: there was an internal error.
func (w *Walker) postpone(pid uint32, walked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.known[pid]; t != nil && !t.next.After(walked) {
		t.next = walked.Add(lastPause)
	}
}

// inTurn has the users of processes take turns. Of one user the order stays.
func (w *Walker) inTurn(pids []uint32) []uint32 {
	before, place := map[uint32]int{}, map[uint32]int{}
	for _, pid := range pids {
		user := w.UserOf(pid)
		place[pid] = before[user]
		before[user]++
	}
	slices.SortStableFunc(pids, func(a, b uint32) int { return place[a] - place[b] })
	return pids
}

// worthwhile reports whether a walk may find something: it did before, it was not tried, or
// PyTorch's allocator was used since. The caller holds w.mu.
func (w *Walker) worthwhile(pid uint32, t *target) bool {
	return t == nil || !t.never && (t.tried == 0 || w.HasTorch(pid))
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Now begins to walk a process that has run out of memory and may be about to free what it has. It
// is called in the transaction in which the error is booked; blocks are the process's at that time.
// The returned function waits for the end of the walk, at most 10 s; nil: it cannot be walked.
func (w *Walker) Now(tx *sequence.Tx, pid uint32, at uint64, blocks []ledger.Block) (wait func()) {
	user := w.UserOf(pid)
	w.mu.Lock()
	t := w.known[pid]
	busy := t != nil && t.never || !w.urgent.Take(pid, user)
	w.mu.Unlock()
	if busy {
		return nil
	}
	tx.Tell(ledger.WalkOpened{PID: pid, Time: at})
	driver := tx.DriverMemory(pid, mostAllocations)
	blocks = slices.Clone(blocks) // the ledger gets the list
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			w.mu.Lock()
			w.urgent.Give(pid)
			w.mu.Unlock()
		}()
		defer w.Defects.Recovered(looking)
		ctx, cancel := context.WithTimeout(context.Background(), walkTime)
		defer cancel()
		w.Sequencer.Tell(w.read(ctx, pid, at, driver, blocks, true))
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(urgentTime):
		}
	}
}

// Walk walks a process, at most for 10 s on the clock, and books what it finds.
func (w *Walker) Walk(pid uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), urgentTime)
	defer cancel()
	w.walk(ctx, pid)
	now := clock.Now()
	w.Sequencer.Settle(now, w.Flush)
	tx := w.Sequencer.Begin()
	defer tx.Done()
	tx.TakeBefore(now + 1)
}

// walk reads one process, and books what it finds.
func (w *Walker) walk(ctx context.Context, pid uint32) {
	defer w.Defects.Recovered(looking)
	w.one.Lock()
	defer w.one.Unlock()
	if err := findPython(ctx, pid); err != nil {
		w.note(pid, 0, err) // there is nothing to book
		return
	}
	blocks := w.Blocks(pid)
	tx := w.Sequencer.Begin()
	w.Mark(tx)
	driver := tx.DriverMemory(pid, mostAllocations)
	opened := clock.Now()
	tx.Read(looking, opened, func(tx *sequence.Tx) { tx.Tell(ledger.WalkOpened{PID: pid, Time: opened}) })
	tx.Done()
	walk := w.read(ctx, pid, opened, driver, blocks, false)
	tx = w.Sequencer.Begin()
	defer tx.Done()
	tx.Read(looking, clock.Now(), func(tx *sequence.Tx) { tx.Tell(walk) })
}

// inMotion reports whether an error may come from lists of objects that changed while they were
// read.
func inMotion(err error) bool {
	return errors.Is(err, holders.ErrNoTensors) || errors.Is(err, holders.ErrPython)
}

// looking is what a panic costs.
const looking = "a look for holders"

// read reads a process. Blocks are those before; opened is when the walk began.
func (w *Walker) read(ctx context.Context, pid uint32, opened uint64, driver, blocks []ledger.Block, urgent bool) ledger.Walk {
	began := time.Now()
	result, err := w.look(ctx, pid, driver, urgent)
	for try := 1; try < tries && err != nil && inMotion(err) && len(blocks) > 0 && time.Since(began) < walkTime; try++ {
		result, err = w.look(ctx, pid, driver, urgent) // its lists of objects changed while they were read
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.DeadlineExceeded {
		result, err = nil, cause // a search that was cut off: what an earlier walk found is worth more
	}
	walk := bookable(result, append(blocks, w.Blocks(pid)...)) // also those that came meanwhile
	walk.PID, walk.Time = pid, opened
	if result != nil {
		walk.Took = uint64(result.Times.Copy)
	} else {
		walk.Failure = failureOf(err)
	}
	took := time.Since(began)
	w.note(pid, took, err)
	if w.Note != nil {
		w.Note(outcome(pid, took, result, err))
	}
	return walk
}

// findPython returns an error if a process runs no CPython, or has ended.
func findPython(ctx context.Context, pid uint32) error {
	_, err := deadline.Walk(ctx, limits, func(context.Context) (struct{}, error) {
		process, err := peek.Open(int(pid))
		if err != nil {
			return struct{}{}, err
		}
		defer process.Close()
		_, err = process.Symbols("_PyRuntime")
		return struct{}{}, err
	})
	return err
}

// look walks a process. It copies the memory at full priority, and then is less urgent than others
// unless a record of an out-of-memory error waits for it.
func (w *Walker) look(ctx context.Context, pid uint32, driver []ledger.Block, urgent bool) (*holders.Result, error) {
	o := holders.Options{MaxMemory: w.MaxMemory, MaxObjects: int(w.MaxMemory / bytesPerObject), HideNames: w.HideNames}
	for _, b := range driver {
		o.Addresses = append(o.Addresses, holders.Range{Address: b.Address, Bytes: b.Size, Device: int(max(b.Device, 0))})
	}
	return deadline.Walk(ctx, limits, func(ctx context.Context) (*holders.Result, error) {
		process, err := peek.Open(int(pid))
		if err != nil {
			return nil, err
		}
		defer process.Close()
		began, of := time.Now(), peek.NewCopy(process, o.MaxMemory)
		defer of.Close()
		if err := of.Take(ctx); err != nil {
			return nil, err
		}
		took := time.Since(began)
		if !urgent { // what changes while it is copied is in doubt, so only the rest can wait
			runtime.LockOSThread() // never unlocked: the thread keeps its priority
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
		}
		result, err := holders.Walk(ctx, of, o)
		if err == nil {
			result.Times.Copy = took
		}
		return result, err
	})
}

// note decides when a process is walked again.
func (w *Walker) note(pid uint32, took time.Duration, err error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.known[pid]
	if t == nil {
		return
	}
	if err == nil {
		t.found++
	}
	switch {
	case err == nil && w.Every > 0:
		t.tried, t.next = 0, now.Add(w.Every)
	case err == nil && t.found < soonWalks && now.Sub(t.first) < soonTime:
		t.tried, t.next = 0, now.Add(max(soonPause, soonCost*took))
	case err == nil:
		t.tried, t.next = 0, now.Add(max(leastPause, costPause*took, now.Sub(t.first)))
	case errors.Is(err, peek.ErrNoPython), errors.Is(err, unix.EPERM):
		t.never = true
	default: // no tensors yet, or it changed too fast
		t.next = now.Add(min(firstPause<<min(t.tried, 10), lastPause))
		t.tried++
	}
}
