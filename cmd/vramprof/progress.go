// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Reading a capture shows progress after readingQuiet, at most once per readingPause.
const (
	readingQuiet = time.Second
	readingPause = 100 * time.Millisecond
)

// showReading shows on a terminal how much of a capture has been read. The line is cleared when
// reading is complete, and by end.
func showReading(w io.Writer, path string) (progress func(done, size int64), end func()) {
	if !terminal.Is(w) {
		return nil, func() {}
	}
	return readingTo(w, path, time.Now)
}

func readingTo(w io.Writer, path string, now func() time.Time) (progress func(done, size int64), end func()) {
	return terminal.Advance(w, now, readingQuiet, func(done, size int64) string {
		return fmt.Sprintf("reading %s: %d %%", untrusted.Clean(path), done*100/size)
	})
}

// showWalks shows on a terminal how many processes were walked at the end.
func showWalks(w io.Writer) (progress func(done, of int64)) {
	if !terminal.Is(w) {
		return func(int64, int64) {}
	}
	return walksTo(w, time.Now)
}

func walksTo(w io.Writer, now func() time.Time) (progress func(done, of int64)) {
	progress, _ = terminal.Advance(w, now, 0, func(done, of int64) string { // one walk can take seconds
		return fmt.Sprintf("reading who keeps the tensors: %d of %s (Ctrl-C skips)", done, format.Count(uint64(of), "process"))
	})
	return progress
}

// showProgress shows on a terminal what vramprof has traced, in one line that end clears.
func showProgress(w io.Writer, now func() ledger.Glance) (end func()) {
	if !terminal.Is(w) {
		return func() {}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		begin := time.Now()
		var line status
		for {
			select {
			case <-done:
				fmt.Fprint(w, terminal.Wipe)
				return
			case at := <-tick.C:
				line.take(at.Sub(begin), now())
				fmt.Fprint(w, terminal.Wipe, line.text(terminal.LineWidth(w)))
			}
		}
	})
	return func() { close(done); wait.Wait() }
}
