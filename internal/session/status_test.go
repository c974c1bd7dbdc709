// SPDX-License-Identifier: Apache-2.0

package session

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTheStatusLineFitsItsTerminal: the least important parts are left out first.
func TestTheStatusLineFitsItsTerminal(t *testing.T) {
	var x status
	for i := range 12 { // a step holds 8 GiB more than its end
		live := uint64(41<<30) + uint64(i/6*70<<20)
		if i%2 == 1 {
			live += 8 << 30
		}
		x.take(time.Duration(i+1)*time.Second, ledger.Glance{Processes: 2, Live: live, Lost: 3})
	}
	for width, want := range map[int]string{
		120: "traced 12s  2 processes  49.1 GiB live  +700 MiB/min over 12s  3 events lost",
		79:  "traced 12s  2 processes  49.1 GiB live  +700 MiB/min over 12s  3 events lost",
		70:  "traced 12s  2 processes  49.1 GiB live  +700 MiB/min  3 events lost",
		60:  "traced 12s  49.1 GiB live  +700 MiB/min  3 events lost",
		43:  "49.1 GiB live  +700 MiB/min  3 events lost",
		39:  "49.1 GiB live  3 events lost",
		19:  "49.1 GiB live",
		5:   "49.1…",
		1:   "…",
	} {
		if got := x.text(width); got != want || format.Width(got) > width {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}

// TestTheStatusLineSaysOnlyWhatItKnows: no growth in the first seconds, and no losses without any.
func TestTheStatusLineSaysOnlyWhatItKnows(t *testing.T) {
	var x status
	x.take(time.Second, ledger.Glance{Processes: 1, Live: 1 << 20})
	if got, want := x.text(79), "traced 1s  1 process  1.00 MiB live"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	for i := range 100 {
		x.take(time.Duration(i+2)*time.Second, ledger.Glance{Processes: 1, Live: 1 << 20})
	}
	if got, want := x.text(79), "traced 1m41s  1 process  1.00 MiB live  steady over 1m00s"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}
