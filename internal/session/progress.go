// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// showWalks shows on a terminal how many processes were walked at the end, from the first on: one
// walk can take seconds.
func showWalks(w io.Writer) (progress func(done, of int64)) {
	progress, _ = terminal.Advance(w, 0, walksText)
	if progress == nil {
		return func(int64, int64) {}
	}
	return progress
}

func walksText(done, of int64) string {
	return fmt.Sprintf("reading who keeps the tensors: %d of %s (Ctrl-C skips)", done, format.Count(uint64(of), "process"))
}

// showProgress shows on a terminal what vramprof has traced, in one line that end clears.
func showProgress(w io.Writer, now func() ledger.Glance) (end func()) {
	var line status
	text, width := "", terminal.LineWidth(w)
	return terminal.AwaitText(w, func(since time.Duration) string {
		if since = since.Truncate(time.Second); since > line.traced { // rates are of whole seconds
			line.take(since, now())
			text = line.text(width)
		}
		return text
	})
}
