// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestAProcessWithManyLeaksLeavesLinesToOthers(t *testing.T) {
	k := newKnownLeaks()
	now := time.Unix(1e9, 0)
	told := map[uint32]int{} // by user
	for minute := range 300 {
		now = now.Add(time.Minute)
		inMinute := 0
		for line := range 5000 {
			key := leakKey{process: ledger.ProcessID{PID: 7, Begin: 1}, line: line}
			if !k.lines[key] && k.take(now, key, 1000) {
				inMinute++
			}
		}
		for pid := range uint32(5000) { // a loop of programs
			if k.take(now, leakKey{process: ledger.ProcessID{PID: 100 + pid, Begin: uint64(minute)}}, 1001) {
				inMinute++
				told[1001]++
			}
		}
		if inMinute > leaksLogged || len(k.lines) > maxLeaks {
			t.Fatalf("minute %d: %d lines are logged, %d are known", minute, inMinute, len(k.lines))
		}
	}
	if n := k.places.Held(7); n != maxLeaks/4 {
		t.Errorf("one process has %d of %d places", n, maxLeaks)
	}
	if now = now.Add(time.Minute); !k.take(now, leakKey{process: ledger.ProcessID{PID: 8, Begin: 1}}, 1002) {
		t.Error("a line of another user's job is not told of")
	}
	if k.forget(func(p ledger.ProcessID) bool { return p.PID == 8 }); len(k.lines) != 1 || k.places.Used() != 1 {
		t.Errorf("%d lines of processes that have ended stay", len(k.lines)-1)
	}
}
