// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"time"
)

// Wipe clears the terminal's current line.
const Wipe = "\r\x1b[K"

// advancePause is how often a line about work is redrawn.
const advancePause = 100 * time.Millisecond

// Advance shows a line about work that takes longer than quiet. The line is cleared when all is
// done, and by end.
func Advance(w io.Writer, now func() time.Time, quiet time.Duration, text func(done, of int64) string) (progress func(done, of int64), end func()) {
	next, shown := now().Add(quiet), false
	end = func() {
		if shown {
			shown = false
			fmt.Fprint(w, Wipe)
		}
	}
	return func(done, of int64) {
		switch at := now(); {
		case done >= of:
			end()
		case !at.Before(next):
			next, shown = at.Add(advancePause), true
			fmt.Fprint(w, Wipe, text(done, of))
		}
	}, end
}
