// SPDX-License-Identifier: Apache-2.0

package probes

import "time"

// A file that could not be compared is looked at again: the first time with the next Review, later
// after growing pauses.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// doubt is a file that is not probed because it could not be compared in a process.
type doubt struct {
	next  time.Time // of looking again
	pause time.Duration
}

// later puts off the next look.
func (d *doubt) later(now time.Time) {
	d.pause = min(max(2*d.pause, leastPause), mostPause)
	d.next = now.Add(d.pause)
}
