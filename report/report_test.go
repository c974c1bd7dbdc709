// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
)

func TestLeaksSelectsByAge(t *testing.T) {
	s := reporttest.Snapshot()
	count := func(older time.Duration) int { return len(Leaks(s, Options{Older: older})) }
	// Oldest at 0 s (training), 1.5 s, 4 s and 4.1 s (hostile); 3 s before the exit at 60 s
	// (server).
	for _, c := range []struct {
		older time.Duration
		want  int
	}{{0, 5}, {57 * time.Second, 5}, {58 * time.Second, 4}, {97 * time.Second, 2}, {99 * time.Second, 1}, {101 * time.Second, 0}} {
		if got := count(c.older); got != c.want {
			t.Errorf("%v: %d sites, want %d", c.older, got, c.want)
		}
	}
}
