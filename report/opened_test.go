// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestLaterCapturesSayWhereTheirSessionBegan: their figures count from then.
func TestLaterCapturesSayWhereTheirSessionBegan(t *testing.T) {
	want := Doubt{AtTitle, "the session began 2h00m before this capture: earlier moments, and processes that ended before, are in the captures before it"}
	s := &ledger.Snapshot{Begin: 100e9, Opened: 100e9 + 7200e9, End: 8000e9}
	if list := Doubts(s); !slices.Contains(list, want) {
		t.Errorf("doubts %+v, want %+v", list, want)
	}
	for _, opened := range []uint64{0, s.Begin} {
		s.Opened = opened
		if list := Doubts(s); slices.Contains(list, want) || len(list) > 0 {
			t.Errorf("opened at %d: %+v", opened, list)
		}
	}
}
