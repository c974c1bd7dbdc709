// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Open reads a memory snapshot of PyTorch as a capture, whose session is the time of its traces, or
// a moment if it has none. An unlimited file is trusted. The error names the file. Close the Reader
// after use.
func Open(name string, unlimited bool) (*capture.Reader, error) {
	p, written, err := load(name, unlimited)
	if err != nil {
		return nil, err
	}
	if p.about.comm == "" {
		p.about.comm = unknownProcess
	}
	r, err := p.capture(written, unlimited)
	if err != nil {
		return nil, named(name, err)
	}
	return r, nil
}

func named(name string, err error) error {
	hint := ""
	if errors.Is(err, errTooLarge) {
		hint = " (--no-limits reads a file that you trust)"
	}
	return fmt.Errorf("read %s: %w%s", name, err, hint)
}

// load parses a file, and returns when it was written.
func load(name string, unlimited bool) (*parser, time.Time, error) {
	f, err := untrusted.OpenRegular(name)
	if err != nil {
		return nil, time.Time{}, named(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, named(name, err)
	}
	p, err := parse(f, info.Size(), unlimited)
	if err != nil {
		return nil, time.Time{}, named(name, err)
	}
	return p, info.ModTime(), nil
}

// unknownProcess is the name of the process of a file that does not name it. Its pid is 0.
const unknownProcess = "PyTorch"

// capture writes the capture into memory. A file without traces has the time at which it was
// written.
func (p *parser) capture(written time.Time, unlimited bool) (*capture.Reader, error) {
	b := &booker{parser: p, stacks: newStacks(), pid: p.about.pid}
	wall := written
	if first, n := p.firstTime(); n > 0 && first > 0 {
		wall = time.UnixMicro(int64(first))
	}
	file := &memoryFile{}
	var clock atomic.Uint64 // the Writer reads it from a goroutine
	clock.Store(begin)
	w, err := capture.NewWriter(file, capture.Options{Host: bounded(p.about.host), Tool: "PyTorch", Wall: wall, Time: begin, Clock: clock.Load})
	if err != nil {
		return nil, err
	}
	b.to = &paced{Writer: w, clock: &clock}
	err = b.tell()
	w.SetStacks(b.stacks) // complete: the Writer reads them from a goroutine
	end := w.End(&ledger.Snapshot{End: max(b.now, begin+1), Wall: wall.Add(time.Duration(b.now - begin))})
	if err == nil {
		err = end
	}
	if err != nil {
		return nil, err
	}
	return capture.NewReaderWith(file, int64(len(file.b)), capture.ReadOptions{Unlimited: unlimited})
}

// paced keeps the clock of a Writer, and waits for it: a Writer drops what comes faster than it
// writes.
type paced struct {
	*capture.Writer
	clock *atomic.Uint64
	sent  uint64
}

// maxAhead is how many events a Writer may have to write. Its queue has room for twice as many.
const maxAhead = 512 << 10

// maxWaits bounds a wait for a Writer that has failed, in ms.
const maxWaits = 10_000

// Apply implements ledger.Books.
func (p *paced) Apply(e *ledger.Event) {
	p.clock.Store(max(p.clock.Load(), e.Time))
	p.Writer.Apply(e)
	p.sent++
	for wait := 0; p.sent%(16<<10) == 0 && p.sent-p.Stored().Events > maxAhead && wait < maxWaits; wait++ {
		time.Sleep(time.Millisecond)
	}
}

// memoryFile is a file in memory.
type memoryFile struct{ b []byte }

// WriteAt implements capture.File. A Writer only appends.
func (f *memoryFile) WriteAt(b []byte, offset int64) (int, error) {
	if offset > int64(len(f.b)) {
		return 0, io.ErrUnexpectedEOF
	}
	f.b = append(f.b[:offset], b...)
	return len(b), nil
}

// Truncate implements capture.File.
func (f *memoryFile) Truncate(size int64) error {
	f.b = f.b[:min(size, int64(len(f.b)))]
	return nil
}

// ReadAt implements io.ReaderAt.
func (f *memoryFile) ReadAt(b []byte, offset int64) (int, error) {
	if offset < 0 || offset >= int64(len(f.b)) {
		return 0, io.EOF
	}
	n := copy(b, f.b[offset:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
