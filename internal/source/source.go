// SPDX-License-Identifier: Apache-2.0

// Package source opens captures, archives and profiles, and finds the moments in them that users
// name.
package source

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/filekind"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/torchfile"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/capture"
)

// Options choose how files are read.
type Options struct {
	Unlimited bool      // without limits on memory and time: the file is trusted
	Stderr    io.Writer // gets warnings, and on a terminal how far reading is
}

// Capture opens a capture, or a memory snapshot of PyTorch as one, and prints its warnings to
// stderr.
func (o Options) Capture(path string) (*capture.Reader, func(), error) {
	progress, end := showReading(o.Stderr, path)
	r, err := capture.OpenWith(path, capture.ReadOptions{Unlimited: o.Unlimited, Progress: progress})
	if errors.Is(err, capture.ErrNotCapture) {
		r, err = o.other(path, err)
	}
	if err != nil {
		end()
		return nil, nil, fault.New(fault.Failed, err) // a file's EACCES is not a missing privilege
	}
	for _, text := range r.Warnings() {
		fmt.Fprintf(o.Stderr, "vramprof: %s\n", untrusted.Clean(text))
	}
	return r, func() { end(); r.Close() }, nil
}

// other opens a file that is no capture, for which reading it as one gave an error.
func (o Options) other(path string, err error) (*capture.Reader, error) {
	switch k := filekind.Of(path); {
	case k.Class == filekind.Pickle:
		return torchfile.Open(path, o.Unlimited)
	case k.Known():
		return nil, fmt.Errorf("read %s: %s", path, k.Text(path, "a capture"))
	}
	return nil, err
}

// Reading a capture shows progress after readingQuiet.
const readingQuiet = time.Second

// showReading shows on a terminal how much of a capture has been read. The line is cleared when
// reading is complete, and by end.
func showReading(w io.Writer, path string) (progress func(done, size int64), end func()) {
	return terminal.Advance(w, readingQuiet, readingText(path))
}

func readingText(path string) func(done, size int64) string {
	return func(done, size int64) string {
		return fmt.Sprintf("reading %s: %d%%", untrusted.Clean(path), done*100/size)
	}
}
