// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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
