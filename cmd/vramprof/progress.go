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

// showProgress says on a terminal how long has been traced, in one line that
// end wipes out.
func showProgress(w io.Writer) (end func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	const wipe = "\r\x1b[K"
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		begin := time.Now()
		for {
			select {
			case <-done:
				fmt.Fprint(f, wipe)
				return
			case now := <-tick.C:
				fmt.Fprintf(f, "%straced %v", wipe, now.Sub(begin).Round(time.Second))
			}
		}
	})
	return func() { close(done); wait.Wait() }
}
