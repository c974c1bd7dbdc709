// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTooShortSaysWhatIsTooShort: a session of 20 s is not too short for 15 s, but its processes
// can be too young.
func TestTooShortSaysWhatIsTooShort(t *testing.T) {
	const second = uint64(1e9)
	for _, c := range []struct {
		session, began uint64 // seconds
		want           string
	}{
		{3, 0, "3.0s are too short to judge growth: 15s decide"},
		{20, 0, ""},
		{20, 18, "the running processes are too young to judge growth: 15s decide"},
	} {
		s := &ledger.Snapshot{Begin: second, End: second + c.session*second, Processes: []ledger.Process{{PID: 7, Begin: second + c.began*second}}}
		if got := TooShortText(s); got != c.want {
			t.Errorf("a session of %d s with a process since %d s: %q, want %q", c.session, c.began, got, c.want)
		}
	}
}
