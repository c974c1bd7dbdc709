// SPDX-License-Identifier: Apache-2.0

// Package allocscan has PyTorch's allocators of traced processes read from outside, and books what
// they have: soon after a process is first traced, and whenever the books are brought up to date.
package allocscan

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Options is what a Scanner needs.
type Options struct {
	Sequencer *sequence.Sequencer
	Defects   *panics.List
	Traced    func() []uint32                 // processes, in any order
	HasTorch  func(pid uint32) bool           // an event came from PyTorch's allocator in the process
	Blocks    func(pid uint32) []ledger.Block // live blocks of PyTorch's allocator since the attach
	// Details is told where the PyTorch of each process that is read has the fields of a Block, and Settings are booked
	// with each reading. Nil: not wanted.
	Details func(pid uint32, f allocator.Fields)
	Version func(pid uint32) string // of PyTorch; nil without Details
}

// Scanner reads the allocators of processes. Any goroutine may call its methods.
type Scanner struct {
	Options
	read    func(pid uint32) (*allocator.Snapshot, error)
	layouts allocator.Layouts
	one     sync.Mutex // held while a process is read

	mu    sync.Mutex // guards what follows
	known map[uint32]*target
}

// errNoCache means that PyTorch allocates with another backend: there are no segments and counters to book.
var errNoCache = errors.New("PyTorch's caching allocator is not in use")

// target is a process whose allocators are read.
type target struct {
	next   time.Time // when it may be read again
	failed int       // readings in a row that found no allocator
	booked bool      // a reading of it was booked
	absent bool      // it did not map PyTorch
	again  bool      // it was tried again when it reported tensors: a data loader does so without CUDA
}

const (
	// Run looks so often for processes that were not read yet.
	lookInterval = 250 * time.Millisecond

	// A process whose allocators cannot be read is tried again after firstPause, then after twice as long,
	// up to lastPause: it may only be about to make them. Without PyTorch, it is up to absentPause, since a host
	// can have thousands of such processes.
	firstPause  = 500 * time.Millisecond
	lastPause   = time.Minute
	absentPause = 30 * time.Minute

	// Between two readings of a process are at least pause, and share times as long as a reading took.
	pause = 5 * time.Second
	share = 100

	readTime = 2 * time.Second // the longest that a reading is waited for

	// A process is read again until its allocators are at rest, at most for restTime, with a restPause in
	// between: a training rests between its steps.
	restTime  = 300 * time.Millisecond
	restPause = 3 * time.Millisecond

	// looking is what a panic costs.
	looking = "a reading of PyTorch's allocators"
)

// New returns a Scanner.
func New(o Options) *Scanner {
	s := &Scanner{Options: o, known: map[uint32]*target{}}
	s.read = s.readProcess
	return s
}

// Run reads each process soon after it is traced, and again after its pause, until ctx ends.
func (s *Scanner) Run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.scan(ctx, isDue)
		}
	}
}

func isDue(t *target, now time.Time) bool { return !now.Before(t.next) }

// Refresh reads the processes that were not read yet, except those that were tried a moment ago. Run reads the
// others: whoever waits for books must not wait for their rest.
func (s *Scanner) Refresh() {
	s.scan(context.Background(), func(t *target, now time.Time) bool { return !t.booked && isDue(t, now) })
}

// Last reads the processes that were read before, at the end of a session.
func (s *Scanner) Last(ctx context.Context) {
	s.scan(ctx, func(t *target, _ time.Time) bool { return t.booked })
}

// Now begins to read a process that has run out of memory and may be about to free what it has. The returned
// function waits for the end, at most readTime.
func (s *Scanner) Now(pid uint32) (wait func()) {
	s.mu.Lock()
	t := s.known[pid]
	booked := t != nil && t.booked
	s.mu.Unlock()
	if !booked {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.book(pid, t, true)
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(readTime):
		}
	}
}

func (s *Scanner) scan(ctx context.Context, wanted func(t *target, now time.Time) bool) {
	for pid, t := range s.due(time.Now(), wanted) {
		if ctx.Err() != nil {
			return
		}
		s.book(pid, t, false)
	}
}

// due returns the processes to read now, and forgets those that are not traced any more.
func (s *Scanner) due(now time.Time, wanted func(t *target, now time.Time) bool) map[uint32]*target {
	traced := s.Traced()
	slices.Sort(traced)
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range s.known {
		if _, is := slices.BinarySearch(traced, pid); !is {
			delete(s.known, pid)
		}
	}
	due := map[uint32]*target{}
	for _, pid := range traced {
		t := s.known[pid]
		if t == nil {
			t = &target{}
			s.known[pid] = t
		}
		if t.absent && !t.again && s.HasTorch(pid) {
			t.again, t.failed, t.next = true, 0, now
		}
		if wanted(t, now) {
			due[pid] = t
		}
	}
	return due
}

// book reads a process, and books what it finds: after the events before it, unless it is urgent. Blocks
// that no event gave out by then or just afterwards are older than the attach.
func (s *Scanner) book(pid uint32, t *target, urgent bool) {
	defer s.Defects.Recovered(looking)
	s.one.Lock()
	defer s.one.Unlock()
	began := time.Now()
	blocks := s.Blocks(pid)
	snapshot, err := deadline.Call(readTime, func() (*allocator.Snapshot, error) { return s.read(pid) })
	if s.Details != nil {
		s.bookSettings(pid)
	}
	if err == nil {
		at := begins(snapshot)
		in := ledger.AllocatorReading{PID: pid, Time: at, Reading: bookable(snapshot, append(blocks, s.Blocks(pid)...))}
		tx := s.Sequencer.Begin()
		if urgent {
			tx.Tell(in)
		} else {
			tx.Read(looking, at, func(tx *sequence.Tx) { tx.Tell(in) })
		}
		tx.Done()
	}
	s.note(t, err, began)
}

// note decides when a process may be read again.
func (s *Scanner) note(t *target, err error, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err == nil {
		t.failed, t.booked = 0, true
		t.next = now.Add(max(pause, share*now.Sub(began)))
		return
	}
	longest := lastPause
	if e := (*allocator.Error)(nil); errors.As(err, &e) && e.Code == allocator.NoLibrary {
		longest = absentPause
		t.absent, t.booked = true, false
	}
	t.next = now.Add(min(firstPause<<min(t.failed, 12), longest))
	t.failed++
}

// begins returns when a snapshot was begun: events up to then are in it.
func begins(s *allocator.Snapshot) uint64 {
	at := clock.Now()
	for i := range s.Devices {
		at = min(at, s.Devices[i].From)
	}
	return at
}

func (s *Scanner) readProcess(pid uint32) (*allocator.Snapshot, error) {
	process, err := peek.Open(int(pid))
	if err != nil {
		return nil, err
	}
	defer process.Close()
	from := s.layouts.New(process)
	snapshot, err := from.Walk(1)
	for end := time.Now().Add(restTime); err == nil && !snapshot.Exact() && time.Now().Before(end); time.Sleep(restPause) {
		again, failed := from.Walk(1)
		if failed != nil {
			break
		}
		if off(again) <= off(snapshot) {
			snapshot = again
		}
	}
	if l := from.Layout(); s.Details != nil && err == nil && l != nil {
		if f, ok := l.Fields(); ok {
			s.Details(pid, f)
		}
	}
	if err == nil && snapshot.Backend != allocator.Native {
		return nil, errNoCache
	}
	return snapshot, err
}

// off returns by how many bytes a snapshot may be off.
func off(s *allocator.Snapshot) (bytes uint64) {
	if s.Exact() {
		return 0
	}
	for i := range s.Devices {
		bytes += s.Devices[i].OffBytes
	}
	return bytes + 1
}
