// SPDX-License-Identifier: Apache-2.0

// Package allocscan reads PyTorch's allocators of traced processes from outside, and books their
// state: soon after a process is first traced, and whenever the books are brought up to date.
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
	Traced    func() []uint32       // processes, in any order
	HasTorch  func(pid uint32) bool // an event came from PyTorch's allocator in the process
	// Tables returns what the reports of a process's allocators came to by now. It tries for
	// patience to have each Whole.
	Tables func(pid uint32, patience time.Duration) []Table
	// Details is told where the PyTorch of each process that is read has the fields of a Block, and
	// Settings are booked with each reading. Nil: not wanted.
	Details func(pid uint32, f allocator.Fields)
	Version func(pid uint32) string // of PyTorch; nil without Details
}

// Scanner reads the allocators of processes. Any goroutine may call its methods.
type Scanner struct {
	Options
	read    func(pid uint32) (*reading, error)
	layouts allocator.Layouts
	one     sync.Mutex // held while a process is read

	mu    sync.Mutex // guards what follows
	known map[uint32]*target
}

// errNoCache means that PyTorch allocates with another backend: there are no segments and counters
// to book.
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

	// A process whose allocators cannot be read is tried again after firstPause, then after twice
	// as long, up to lastPause: it may only be about to make them. Without PyTorch, it is up to
	// absentPause, since a host can have thousands of such processes.
	firstPause  = 500 * time.Millisecond
	lastPause   = time.Minute
	absentPause = 30 * time.Minute

	// Between two readings of a process are at least pause, and share times as long as a reading
	// took.
	pause = 5 * time.Second
	share = 100

	// What a reading takes at most: of a processor, or of time in which its reads wait for the
	// process; and on the clock.
	readTime  = 2 * time.Second
	readTotal = 10 * time.Second

	// A process is read again until its allocators are at rest, at most for restTime, with a
	// restPause in between: a training rests between its steps.
	restTime  = 300 * time.Millisecond
	restPause = 3 * time.Millisecond

	// tablePatience is how long a moment between two reports is waited for.
	tablePatience = 40 * time.Millisecond

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
	clock.Every(ctx, lookInterval, func() { s.scan(ctx, isDue) })
}

func isDue(t *target, now time.Time) bool { return !now.Before(t.next) }

// Refresh reads the processes that were not read yet, except those that were tried a moment ago.
// Run reads the others: whoever waits for books must not wait for their rest.
func (s *Scanner) Refresh() {
	s.scan(context.Background(), func(t *target, now time.Time) bool { return !t.booked && isDue(t, now) })
}

// Last reads the processes that were read before, at the end of a session.
func (s *Scanner) Last(ctx context.Context) {
	s.scan(ctx, func(t *target, _ time.Time) bool { return t.booked })
}

// Now begins to read a process that has run out of memory and may be about to free what it has. The
// returned function waits for the end, at most readTime on the clock.
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

// book reads a process, and books what it finds: after the events before it, unless it is urgent.
// Blocks that no event gave out by then or just afterwards are older than the attach.
func (s *Scanner) book(pid uint32, t *target, urgent bool) {
	defer s.Defects.Recovered(looking)
	s.one.Lock()
	defer s.one.Unlock()
	began := time.Now()
	limits := deadline.Limits{Processor: readTime, Waiting: readTime, Total: readTotal}
	r, err := deadline.Walk(context.Background(), limits, func(context.Context) (*reading, error) { return s.read(pid) })
	if s.Details != nil {
		s.bookSettings(pid)
	}
	if err == nil {
		at := r.at
		in := ledger.AllocatorReading{PID: pid, Time: at, Reading: r.bookable()}
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

// readProcess walks a process until it is at rest, or the reports of its allocators settle a walk.
// The last walk is the worst that it returns: the one that is off by least.
func (s *Scanner) readProcess(pid uint32) (*reading, error) {
	process, err := peek.Open(int(pid))
	if err != nil {
		return nil, err
	}
	defer process.Close()
	from := s.layouts.New(process)
	defer s.tellDetails(pid, from)
	var best *reading
	var k settler
	before := s.Tables(pid, 0)
	for end := time.Now().Add(restTime); ; time.Sleep(restPause) {
		walk, err := from.Walk(1)
		switch {
		case err != nil && best == nil:
			return nil, err
		case err != nil:
			return best, nil
		case walk.Backend != allocator.Native:
			return nil, errNoCache
		}
		patience := tablePatience
		if walk.Exact() {
			patience = 0
		}
		after := s.Tables(pid, patience)
		now := clock.Now()
		if walk.Exact() {
			return readingOf(walk, before, after), nil
		}
		if settled := k.settle(walk, before, after); settled != nil {
			return settledReading(settled, after, timeOf(after, now)), nil
		}
		if best == nil || off(walk) <= off(best.Snapshot) {
			best = readingOf(walk, before, after)
		}
		if !time.Now().Before(end) {
			return best, nil
		}
		before = after
	}
}

// timeOf returns the time of the latest report in tables, now where there is none.
func timeOf(list []Table, now uint64) (at uint64) {
	for i := range list {
		at = max(at, list[i].Time)
	}
	if at == 0 {
		return now
	}
	return at
}

// off returns by how many bytes a walk may be off.
func off(s *allocator.Snapshot) (bytes uint64) {
	for i := range s.Devices {
		bytes += s.Devices[i].OffBytes
	}
	return bytes
}

// tellDetails tells Details of the layout with which a process was read, if that is known.
func (s *Scanner) tellDetails(pid uint32, from *allocator.Allocator) {
	if s.Details == nil {
		return
	}
	if l := from.Layout(); l != nil {
		if f, ok := l.Fields(); ok {
			s.Details(pid, f)
		}
	}
}
