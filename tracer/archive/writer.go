// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ErrInUse means that another process writes into the folder.
var ErrInUse = errors.New("another vramprof writes into it")

// Writer writes the history of a session into a folder. It is safe for concurrent use, and only End
// waits for the disk.
//
// A killed process loses at most what came in its last 0.75 s. A power cut loses at most the last
// 16 s.
type Writer struct {
	o       Options
	dir     *os.Root // nil: the disk did not let it be opened
	path    string
	lock    *os.File
	session string
	boot    string

	wake chan struct{} // there is something to do for the keeper
	stop chan struct{}
	done chan struct{}

	// Only the keeper's goroutine uses what follows.
	files  []stored // complete captures, oldest first
	last   stored   // the capture begun last
	serial uint32   // of the next part
	retry  time.Time
	aged   time.Time
	silent bool // Note was told that writing fails

	mu      sync.Mutex // guards what follows
	current *part      // nil: history is being lost
	next    *part      // ready to become current; nil: none
	old     []*part    // to be ended
	summary summary    // of the current capture, or of what is being lost
	stacks  callstack.Stacks
	ended   bool
	since   uint64 // if current is nil: from when on the archive has nothing
	stats   Stats
}

// Stats are sums over a Writer's time.
type Stats struct {
	Bytes  int64     // of all captures and indexes in the folder
	Files  int       // captures in the folder
	Oldest time.Time // when the oldest of them was begun; zero without one

	LostEvents uint64        // that are in no capture
	LostTime   time.Duration // that is in no capture
	Failures   uint64        // of the disk
	Err        error         // why nothing can be written now; nil: it can
}

// NewWriter creates the folder if it is missing, and begins a capture in it. If the disk is full,
// read-only or fails, the Writer begins one later.
func NewWriter(dir string, o Options) (*Writer, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clock.Now
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	// Times with Go's monotonic reading are subtracted by it: a set clock would never show.
	wall := o.Wall
	o.Wall = func() time.Time { return wall().Round(0) }
	if o.Note == nil {
		o.Note = func(string) {}
	}
	w := &Writer{
		o: o, path: dir, session: newSession(), boot: bootID(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	w.since = o.Clock()
	if p, err := w.begin(); err == nil {
		w.current = p
	} else if w.dir == nil && !isDisk(err) {
		return nil, fmt.Errorf("write to %s: %w", dir, cause(err))
	} else {
		w.serial = max(w.serial, 1) // the first capture begins with an opening then
		w.fails(err)
	}
	w.count()
	go w.keep()
	return w, nil
}

// open opens and locks the folder, and reads what is in it.
func (w *Writer) open() error {
	dir, err := openFolder(w.path)
	if err != nil {
		return err
	}
	lock, err := dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		dir.Close()
		return err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		err = ErrInUse
	}
	var files []stored
	var orphans []string
	if err == nil {
		files, orphans, err = list(dir)
	}
	if err != nil {
		lock.Close()
		dir.Close()
		return err
	}
	for _, name := range orphans {
		_ = dir.Remove(name)
	}
	w.dir, w.lock = dir, lock
	if w.files = files; len(files) > 0 {
		w.last = files[len(files)-1]
	}
	return nil
}

// openFolder opens a folder that no other user can change, and creates it if it is missing.
func openFolder(path string) (*os.Root, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return untrusted.OwnFolder(path, untrusted.NoWriting)
}

// createNew creates a file. One of this name is removed before, not written into.
func createNew(dir *os.Root, name string) (*os.File, error) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

// cause returns an error without the name that the caller adds.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func newSession() string {
	return fmt.Sprintf("%016x", rand.Uint64())
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// Dir returns the folder.
func (w *Writer) Dir() string { return w.path }

// SetStacks sets the source of stack frames. Before it is called, no frames are written.
func (w *Writer) SetStacks(s callstack.Stacks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stacks = s
	for _, p := range []*part{w.current, w.next} {
		if p != nil {
			p.writer.SetStacks(s)
		}
	}
}

// Apply implements ledger.Books.
func (w *Writer) Apply(e *ledger.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn()
	w.summary.Apply(e)
	if w.current == nil {
		w.stats.LostEvents++
		return
	}
	w.current.apply(e)
}

// Tell implements ledger.Books.
func (w *Writer) Tell(in ledger.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn()
	w.summary.Tell(in)
	if w.current != nil {
		w.current.writer.Tell(in)
	}
}

// turn makes the next part the current one, if it is ready. The books that Options.Opening tells
// are as of before the input that is about to come. The caller holds w.mu.
func (w *Writer) turn() {
	p := w.next
	if p == nil || w.ended {
		return
	}
	now := w.o.Clock()
	w.next, p.begin = nil, now
	if w.current != nil {
		w.current.end = now
		w.endCurrent()
	} else {
		w.stats.LostTime += time.Duration(now - min(w.since, now))
		w.stats.Err = nil
	}
	w.current = p
	if p.serial > 0 {
		p.writer.Open(func(ledger.Books) {
			w.o.Opening(opener{p})
			w.summary.introduce(opener{p})
		})
	}
	signal(w.wake)
}

// endCurrent has the keeper end the current part. The caller holds w.mu.
func (w *Writer) endCurrent() {
	w.current.summary, w.summary = w.summary, w.summary.next()
	w.old, w.current = append(w.old, w.current), nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Stats never waits for the disk.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	for _, p := range []*part{w.current, w.next} {
		if p != nil {
			s.Bytes += p.writer.Stored().Bytes
			s.Files++
		}
	}
	if w.current == nil && !w.ended {
		now := w.o.Clock()
		s.LostTime += time.Duration(now - min(w.since, now))
	}
	if s.Oldest.IsZero() && w.current != nil {
		s.Oldest = w.current.created
	}
	return s
}

// endWait is how long End waits for a disk that hangs.
const endWait = 10 * time.Second

// End writes what remains, ends the current capture and gives the folder free. s is the last
// snapshot of the session with all its warnings, or nil. The error names what the archive lacks.
func (w *Writer) End(s *ledger.Snapshot) error {
	w.mu.Lock()
	ended := w.ended
	w.ended = true
	w.mu.Unlock()
	if ended {
		return nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		close(w.stop)
		<-w.done
		w.finish(s)
	}()
	select {
	case <-over:
	case <-time.After(endWait):
		return fmt.Errorf("write to %s: the disk does not answer", w.path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stats.Err != nil {
		return fmt.Errorf("write to %s: %w", w.path, w.stats.Err)
	}
	if w.stats.LostEvents > 0 {
		return fmt.Errorf("%s lacks %d events", w.path, w.stats.LostEvents)
	}
	return nil
}
