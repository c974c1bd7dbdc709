// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// wipeLine clears the terminal's current line.
const wipeLine = "\r\x1b[K"

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Reading a capture shows progress after readingQuiet, at most once per readingPause.
const (
	readingQuiet = time.Second
	readingPause = 100 * time.Millisecond
)

// showReading shows on a terminal how much of a capture has been read. The line is cleared when
// reading is complete, and by end.
func showReading(w io.Writer, path string) (progress func(done, size int64), end func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	return readingTo(w, path, time.Now)
}

func readingTo(w io.Writer, path string, now func() time.Time) (progress func(done, size int64), end func()) {
	return advance(w, now, readingQuiet, func(done, size int64) string {
		return fmt.Sprintf("reading %s: %d %%", untrusted.Clean(path), done*100/size)
	})
}

// showWalks shows on a terminal how many processes were walked at the end.
func showWalks(w io.Writer) (progress func(done, of int64)) {
	if !isTerminal(w) {
		return func(int64, int64) {}
	}
	return walksTo(w, time.Now)
}

func walksTo(w io.Writer, now func() time.Time) (progress func(done, of int64)) {
	progress, _ = advance(w, now, 0, func(done, of int64) string { // one walk can take seconds
		return fmt.Sprintf("reading who keeps the tensors: %d of %s (Ctrl-C skips)", done, format.Count(uint64(of), "process"))
	})
	return progress
}

// advance shows a line about work that takes longer than quiet. The line is cleared when all is done, and by end.
func advance(w io.Writer, now func() time.Time, quiet time.Duration, text func(done, of int64) string) (progress func(done, of int64), end func()) {
	next, shown := now().Add(quiet), false
	end = func() {
		if shown {
			shown = false
			fmt.Fprint(w, wipeLine)
		}
	}
	return func(done, of int64) {
		switch at := now(); {
		case done >= of:
			end()
		case !at.Before(next):
			next, shown = at.Add(readingPause), true
			fmt.Fprint(w, wipeLine, text(done, of))
		}
	}, end
}

// showProgress shows on a terminal what vramprof has traced, in one line that end clears.
func showProgress(w io.Writer, now func() ledger.Glance) (end func()) {
	if !isTerminal(w) {
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
				fmt.Fprint(w, wipeLine)
				return
			case at := <-tick.C:
				line.take(at.Sub(begin), now())
				fmt.Fprint(w, wipeLine, line.text(lineWidth(w)))
			}
		}
	})
	return func() { close(done); wait.Wait() }
}

// lineWidth returns how many columns of a terminal a line may fill without wrapping.
func lineWidth(w io.Writer) int {
	columns := usualColumns
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			columns = n
		}
	}
	return max(columns-1, 1)
}
