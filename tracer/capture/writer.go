// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Options configures a Writer.
type Options struct {
	Host     string        // name of the machine
	Tool     string        // writing program, "vramprof 1.2.3"
	Interval time.Duration // longest time until inputs are written; 0: 750 ms
	Clock    func() uint64 // ns of CLOCK_MONOTONIC; nil: the system's
	Wall     time.Time     // current time; the zero value: the system's
	Time     uint64        // the same by Clock; 0: Clock is read
	OnError  func(error)   // called once, from a goroutine of the Writer, when no more can be written; may be nil

	// Of a capture in an archive: the boot that the clock counts from, the session, and the number
	// of this capture in it, from 0. A further capture has no content before Open.
	Boot, Session string
	Part          uint32

	batch int   // events per frame; for tests
	step  int64 // between checkpoints; for tests
}

const (
	defaultInterval = 750 * time.Millisecond
	batchEvents     = 16 << 10
	maxQueue        = 64 // batches that wait for the disk, typically 200 KB each
	blocksPart      = 32 << 10
)

// Writer appends to a capture. It is safe for concurrent use; only End waits for the disk. The
// file, and the error of End, name what the Writer dropped.
type Writer struct {
	clock  func() uint64
	failed func(error) // Options.Failed
	queue  chan *batch
	end    chan struct{}
	done   chan struct{}
	disk   *disk // used by the writing goroutine, and by End after it
	names  *names
	most   int // events per batch

	mu     sync.Mutex  // guards the fields below
	coder  *eventCoder // of the current batch
	now    uint64      // latest time of an input
	begin  uint64      // of the ledger
	batch  *batch
	spare  []*batch
	gap    *batch   // inputs dropped since the last queued batch
	lost   int      // events in all gaps
	opens  bool     // Open is being called: the queue has no limit
	rest   []*batch // queued after those in queue, by Open
	room   int      // most batches in rest: after Open, others queue behind its own
	stored Stored
	closed bool
	err    error // no more can be written
	upTo   uint64

	checkpoints checkpointer
}

// NewWriter writes the beginning of a capture to an empty file. The caller must close the file
// after End.
func NewWriter(file File, o Options) (*Writer, error) {
	if o.Clock == nil {
		o.Clock = monotonic
	}
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.Wall.IsZero() {
		o.Wall = time.Now()
	}
	began := cmp.Or(o.Time, o.Clock())
	d, err := newDisk(file, &wire.Head{
		Tool: []byte(o.Tool), Host: []byte(o.Host), Time: began, Wall: o.Wall.UnixNano(),
		Boot: []byte(o.Boot), Session: []byte(o.Session), Part: o.Part,
	})
	if err != nil {
		return nil, err
	}
	w := &Writer{
		clock: o.Clock, failed: o.OnError, disk: d, names: newNames(), most: cmp.Or(o.batch, batchEvents), now: began, begin: began, checkpoints: checkpointer{step: cmp.Or(o.step, checkpointStep)}, stored: Stored{Bytes: d.offset, Time: began}, batch: &batch{}, coder: newEventCoder(),
		queue: make(chan *batch, maxQueue), end: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run(o.Interval)
	return w, nil
}

func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// SetStacks sets the source of stack frames. Before it is called, no frames are written.
func (w *Writer) SetStacks(s callstack.Stacks) { w.names.begin(s) }

// run writes queued batches and, at least once per interval, the current one.
func (w *Writer) run(interval time.Duration) {
	defer close(w.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case b := <-w.queue:
			w.write(b)
		case <-w.names.ready:
			w.check(w.names.write(w.disk))
		case <-tick.C:
			w.mu.Lock()
			w.pass()
			w.mu.Unlock()
		case <-w.end:
			for len(w.queue) > 0 { // write refills it
				w.write(<-w.queue)
			}
			return
		}
	}
}

func (w *Writer) write(b *batch) {
	if !w.dead() {
		w.check(w.disk.batch(b, w.names))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(b)
	w.reuse(b)
	for len(w.rest) > 0 && len(w.queue) < cap(w.queue) {
		w.queue <- w.rest[0]
		w.rest = w.rest[1:]
	}
}

// note keeps what is in the file after b was written, if nothing failed. The writing goroutine
// calls it, with w.mu held.
func (w *Writer) note(b *batch) {
	opened := w.stored.Opened || w.err == nil && b != nil && b.opened
	w.stored = Stored{Bytes: w.disk.offset, Events: w.disk.events, Time: w.disk.last, Opened: opened}
	if b != nil && b.checkpoint != nil {
		w.checkpoints.after = w.disk.offset
	}
}

func (w *Writer) dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// check stores the first error of the disk, which ends the capture.
func (w *Writer) check(err error) {
	if err == nil || w.dead() {
		return
	}
	w.mu.Lock()
	w.err, w.upTo = err, w.disk.last
	w.mu.Unlock()
	if w.failed != nil {
		w.failed(w.failure())
	}
}

// failure returns an error that names what the capture lacks, or nil.
func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("the capture ends at %s: %w", since(w.begin, w.upTo), w.err)
	}
	if w.lost > 0 {
		return fmt.Errorf("the capture lacks %d events (the disk was too slow)", w.lost)
	}
	return nil
}

// pass queues the current batch for the writing goroutine. An empty batch is queued too: it records
// that nothing happened. If the queue is full, the batch becomes a gap. The caller holds w.mu.
func (w *Writer) pass() {
	b := w.batch
	w.checkpoints.look = true
	now := w.clock()
	if b.empty() {
		b.first = now
	}
	b.last = max(w.now, b.first, now)
	if !b.empty() {
		w.coder.reset()
	}
	if w.gap != nil && len(w.rest) == 0 && len(w.queue) <= cap(w.queue)-2 { // nobody else sends: the caller holds w.mu
		w.queue <- w.gap
		w.gap = nil
	}
	if w.gap == nil && w.send(b) {
		w.batch = &batch{}
		if n := len(w.spare); n > 0 {
			w.batch, w.spare = w.spare[n-1], w.spare[:n-1]
		}
		return
	}
	if b.empty() {
		return
	}
	if w.gap == nil {
		w.gap = &batch{gap: true, first: b.first}
	}
	w.gap.last = b.last
	w.gap.lost += int(b.inputs.Events)
	w.lost += max(int(b.inputs.Events), 1)
	b.clear()
}

// send queues a batch, or reports that there is no room. The caller holds w.mu.
func (w *Writer) send(b *batch) bool {
	switch {
	case len(w.rest) == 0 && len(w.queue) < cap(w.queue):
		w.queue <- b
	case w.err == nil && (w.opens || len(w.rest) > 0 && len(w.rest) < w.room):
		w.rest = append(w.rest, b)
	default:
		return false
	}
	return true
}

// Open has opening tell the Writer, in its calling goroutine, what makes other books the same as
// those that all further inputs are for. It must come before any other input. Whatever an opening
// contains, none of it is dropped because the disk is slow: it waits in memory. Readers that find
// no mark of its end know that the capture shows less than there was.
func (w *Writer) Open(opening func(to ledger.Books)) {
	w.mu.Lock()
	w.opens = true
	w.mu.Unlock()
	opening(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.batch.empty() {
		w.pass()
	}
	now := max(w.now, w.clock())
	if !w.closed && w.err == nil {
		w.send(&batch{opened: true, first: now, last: now})
	}
	w.opens, w.room = false, len(w.rest)+maxQueue
}

// Stored is how much of a capture is in its file.
type Stored struct {
	Bytes  int64
	Events uint64
	Time   uint64 // everything up to then is
	Opened bool   // the whole opening is; see Open
}

// Stored returns how much is in the file. It never waits for the disk.
func (w *Writer) Stored() Stored {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored
}

// reuse keeps a batch for reuse. The caller holds w.mu.
func (w *Writer) reuse(b *batch) {
	if b.clear(); len(w.spare) < 2 && !b.gap && !b.opened && b.checkpoint == nil {
		w.spare = append(w.spare, b)
	}
}

// End writes the remaining inputs and ends the capture. s is the last snapshot of the ledger with
// all its warnings, or nil. The error names what the capture lacks. Later calls have no effect.
func (w *Writer) End(s *ledger.Snapshot) error {
	w.mu.Lock()
	ended := w.closed
	w.closed = true
	w.mu.Unlock()
	if !ended {
		close(w.end)
		<-w.done
		w.names.close()
		if !w.dead() {
			w.check(w.finish(s))
		}
		w.mu.Lock()
		w.note(nil)
		w.mu.Unlock()
	}
	return w.failure()
}

// finish writes the end, once nothing else uses the Writer.
func (w *Writer) finish(s *ledger.Snapshot) error {
	if w.gap != nil {
		if err := w.disk.batch(w.gap, w.names); err != nil {
			return err
		}
	}
	last := w.batch
	if last.empty() {
		last.first = w.now
	}
	last.last = max(w.now, last.first, w.clock())
	if err := w.disk.batch(last, w.names); err != nil {
		return err
	}
	if err := w.names.finish(w.disk); err != nil || s == nil {
		return err
	}
	end := &wire.End{Time: s.End, Wall: s.Wall.UnixNano()}
	for _, text := range s.Warnings {
		end.Warning = append(end.Warning, []byte(text))
	}
	return w.disk.end(end)
}
