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
)

// wipeLine clears the line of a terminal that the cursor is in.
const wipeLine = "\r\x1b[K"

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Reading says nothing for so long, and then not more often than that.
const (
	readingQuiet = time.Second
	readingPause = 100 * time.Millisecond
)

// showReading says on a terminal how far a capture has been read, in a line that is wiped out when it has been gone through, and by end.
func showReading(w io.Writer, path string) (progress func(done, size int64), end func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	return readingTo(w, path, time.Now)
}

func readingTo(w io.Writer, path string, now func() time.Time) (progress func(done, size int64), end func()) {
	next, shown := now().Add(readingQuiet), false
	end = func() {
		if shown {
			shown = false
			fmt.Fprint(w, wipeLine)
		}
	}
	return func(done, size int64) {
		switch at := now(); {
		case done >= size:
			end()
		case !at.Before(next):
			next, shown = at.Add(readingPause), true
			fmt.Fprintf(w, "%sreading %s: %d %%", wipeLine, untrusted.Clean(path), done*100/size)
		}
	}, end
}

// showProgress says on a terminal how long has been traced, in one line that
// end wipes out.
func showProgress(w io.Writer) (end func()) {
	if !isTerminal(w) {
		return func() {}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		begin := time.Now()
		for {
			select {
			case <-done:
				fmt.Fprint(w, wipeLine)
				return
			case now := <-tick.C:
				fmt.Fprintf(w, "%straced %v", wipeLine, now.Sub(begin).Round(time.Second))
			}
		}
	})
	return func() { close(done); wait.Wait() }
}
