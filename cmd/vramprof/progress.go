// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// wipeLine clears the line of a terminal that the cursor is in.
const wipeLine = "\r\x1b[K"

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
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
