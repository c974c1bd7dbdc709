// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"time"

	"github.com/vramprof/vramprof/tracer/libraries"
)

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

// probeDoubted probes the files again that could not be compared, if it is time.
func (s *Files) probeDoubted(now time.Time) {
	var again []libraries.Mapped
	for key, d := range s.doubts {
		x := s.known[key]
		if x == nil || !x.noApart {
			delete(s.doubts, key)
			continue
		}
		if now.Before(d.next) {
			continue
		}
		d.later(now)
		again = append(again, s.takeUnpatched(key)...)
	}
	if len(again) > 0 {
		s.Probe(again)
	}
}
