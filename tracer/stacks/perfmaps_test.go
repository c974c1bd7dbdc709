// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Large perf maps of one user's processes take a small part of the time of the goroutine that reads
// all stacks, and keep no other user's map from being read.
func TestPerfMapsOfOneUserLeaveTimeForOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	if err := os.WriteFile(path, []byte("1000 10 f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Max, symbolize.Options{})
	defer s.Close()
	const slow, begin = 200 * time.Millisecond, 1_000_000
	now := time.Unix(begin, 0)
	s.now = func() time.Time { return now }
	spent := map[bool]time.Duration{}
	s.perfMaps.open = func(pid uint32) (*os.File, error) {
		cost := slow
		if pid == 99 {
			cost = time.Millisecond
		}
		now = now.Add(cost)
		spent[pid == 99] += cost
		return os.Open(path)
	}
	id := uint64(0)
	for now.Before(time.Unix(begin+60, 0)) {
		for pid := range uint32(8) {
			id++
			s.Add(unwind.Stack{ID: id, PID: pid, Frames: []unwind.Frame{{JIT: true, Address: 0x9000}}}, 1000)
		}
		id++
		s.Add(unwind.Stack{ID: id, PID: 99, Frames: []unwind.Frame{{JIT: true, Address: 0x9000}}}, 1001)
		now = now.Add(10 * time.Millisecond)
	}
	if spent[false] > 4*time.Second || spent[false] < time.Second {
		t.Errorf("8 processes of one user took %v of a minute, want a twentieth", spent[false])
	}
	if spent[true] < 40*time.Millisecond {
		t.Errorf("the map of another user's process was read for %v of a minute, want once a second", spent[true])
	}
}
