// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/oom/oomevent"
)

func TestMissedOOMsInWords(t *testing.T) {
	for want, c := range map[string][2]uint64{
		"": {0, 0},
		"1 further out-of-memory error was not recorded":          {1, 0},
		"2 further out-of-memory errors were not recorded":        {2, 0},
		"up to 1 further out-of-memory error was not recorded":    {0, 1},
		"up to 84 further out-of-memory errors were not recorded": {4, 80},
	} {
		if got := missedText(c[0], c[1]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestASessionEndsThoughRecordsAreSlow: what waits for a slow record is counted, not written.
func TestASessionEndsThoughRecordsAreSlow(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	written := 0
	r := &Recorder{Say: func(string) {}, Describe: func(Error) string { return "" }, Write: func(Error) (string, error) {
		written++
		close(begun)
		<-release
		return "x", nil
	}}
	for range 3 {
		r.Add(Error{Event: oomevent.Event{PID: 7, Comm: "train"}, Record: true})
	}
	<-begun
	r.mu.Lock()
	r.ended = time.Now().Add(-endWait)
	r.mu.Unlock()
	close(release)
	r.End()
	if written != 1 || r.Unrecorded() != 2 || r.by[7].recorded != 1 {
		t.Errorf("%d records, %d missed, of the process %+v; want 1 and 2", written, r.Unrecorded(), r.by[7])
	}
}
