// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// countedReads counts how often each part of a file is read.
type countedReads struct {
	*bytes.Reader
	times map[int64]int
	bytes int
}

func (c *countedReads) ReadAt(b []byte, at int64) (int, error) {
	c.times[at]++
	c.bytes += len(b)
	return c.Reader.ReadAt(b, at)
}

// TestAPageReadsACaptureTwiceAtMost: each frame is read for the page, and those since the last
// checkpoint, here all, for the times of the peaks, which only later events tell from others.
func TestAPageReadsACaptureTwiceAtMost(t *testing.T) {
	const begin, events = uint64(1e12), 80_000 // more than a timeline looks ahead
	path := filepath.Join(t.TempDir(), "run.vram")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := capture.NewWriter(file, capture.Options{Host: "box", Clock: func() uint64 { return begin }, Wall: time.Unix(1e9, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(rankStacks{})
	w.Tell(ledger.Begin{Time: begin})
	w.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: begin})
	for i := range uint64(events) {
		e := ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Device, PID: 7, TID: 7, Time: begin + (1+i)*1e6, Address: (1 + i/2) << 20,
			Size: i%9973 + 512, Stack: 1 + i/2%2, API: "cudaMalloc",
		}
		if i%2 == 1 {
			e.Op, e.Size, e.Stack = ledger.Free, 0, 0
		}
		w.Apply(&e)
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reads := &countedReads{Reader: bytes.NewReader(b), times: map[int64]int{}}
	r, err := capture.NewReader(reads, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	clear(reads.times)
	reads.bytes = 0
	write, err := output.HTML.Prepare(output.Session{Capture: r, At: r.End(), Stacks: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(io.Discard); err != nil {
		t.Fatal(err)
	}
	for at, n := range reads.times {
		if n > 2 {
			t.Errorf("what begins at byte %d of %d was read %d times", at, len(b), n)
		}
	}
	if reads.bytes < len(b)*9/10 || r.Events() != events {
		t.Errorf("%d of %d bytes were read, with %d events", reads.bytes, len(b), r.Events())
	}
}
