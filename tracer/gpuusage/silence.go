// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"time"
)

// silence is how long NVML gave no complete reading. Times are ns of CLOCK_MONOTONIC.
type silence struct {
	heard  uint64 // when it last gave one; before the first one, when it was first asked
	asked  uint64 // when it was last asked in vain; 0: it answers
	first  uint64 // when it last gave one before the first silence
	missed int    // readings that it did not give
	times  int    // silences that are over
	sum    uint64 // ns of those
}

// read notes a reading that was asked for at time, and whether it was complete.
func (s *silence) read(time uint64, ok bool) {
	if s.heard == 0 {
		s.heard = time
	}
	if !ok {
		if s.missed == 0 {
			s.first = s.heard
		}
		s.missed++
		s.asked = time
		return
	}
	if s.asked != 0 {
		s.times++
		s.sum += time - s.heard
		s.asked = 0
	}
	s.heard = time
}

// text returns "NVML has been silent since 12s after the begin (30 readings are missing): …", "" if
// no reading is missing.
func (s *silence) text(begin uint64) string {
	missing := "1 reading is missing"
	if s.missed > 1 {
		missing = fmt.Sprintf("%d readings are missing", s.missed)
	}
	after := func(at uint64) time.Duration { return time.Duration(at - min(begin, at)).Round(10 * time.Millisecond) }
	switch {
	case s.missed == 0:
		return ""
	case s.asked != 0:
		return fmt.Sprintf("NVML has been silent since %v after the begin (%s): usage and what is unexplained are from then", after(s.heard), missing)
	case s.times == 1:
		return fmt.Sprintf("NVML was silent from %v after the begin on, for %v (%s): it answers again", after(s.first), time.Duration(s.sum).Round(10*time.Millisecond), missing)
	}
	return fmt.Sprintf("NVML was silent %d times from %v after the begin on, for %v in all (%s): it answers again",
		s.times, after(s.first), time.Duration(s.sum).Round(10*time.Millisecond), missing)
}
