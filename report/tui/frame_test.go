// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestOnlyASessionWithoutRunningProcessesHasEnded(t *testing.T) {
	run, gone := ledger.Process{PID: 7, Comm: "python3"}, ledger.Process{PID: 8, Comm: "job", End: 5}
	for _, c := range []struct {
		name      string
		processes []ledger.Process
		speed     float64
		running   bool
		want      bool
	}{
		{"a single screen of a process that runs", []ledger.Process{run, gone}, 0, false, false},
		{"of one that has ended", []ledger.Process{gone}, 0, false, true},
		{"of none", nil, 0, false, false},
		{"a capture at its end", []ledger.Process{run}, 1, false, true},
		{"a session", []ledger.Process{gone}, 0, true, false},
	} {
		m := New(Options{})
		m.take(m.feed.reader.read(Moment{Snapshot: &ledger.Snapshot{Processes: c.processes, End: 9}, Speed: c.speed, Ended: !c.running}))
		if got := strings.Contains(m.titleLine(80), "ENDED"); got != c.want {
			t.Errorf("%s: ENDED %v, want %v", c.name, got, c.want)
		}
	}
}
