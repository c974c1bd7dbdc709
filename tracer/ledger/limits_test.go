// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

func TestProcessesBeyondTheLimitAreCountedAsLost(t *testing.T) {
	l := New(Options{maxProcesses: 6})
	apply := func(op Op, pid uint32, time, address uint64) {
		l.Apply(&Event{Op: op, Kind: Device, PID: pid, Time: time, Address: address, Size: 10})
	}
	for pid := range uint32(5) { // there is no room for the last two
		l.Tell(Process{PID: pid + 1, Comm: "p", Begin: 1})
		apply(Alloc, pid+1, 10, 1)
	}
	apply(Exit, 5, 20, 0) // no loss: there is nothing to end
	apply(Exit, 1, 20, 0)
	apply(Alloc, 1, 15, 2) // of the process that has ended
	apply(Alloc, 1, 25, 3) // of the next one with its pid
	apply(Free, 2, 30, 1)
	l.Tell(Stats{})
	if s := l.Snapshot(40, time.Time{}); s.Stats.LostFor[LostNoRoomInLedger] != 3 {
		t.Errorf("lost for %v, want 3 for want of room", s.Stats.LostFor)
	}
	l.Tell(Stats{Lost: 4})
	s := l.Snapshot(40, time.Time{})
	if len(s.Processes) != 3 || s.Stats.Lost != 4+3 {
		t.Errorf("%d processes, %d events lost; want 3 and 7", len(s.Processes), s.Stats.Lost)
	}
	var live uint64
	for _, x := range s.Sites {
		live += x.LiveObjects
	}
	if live != 3 {
		t.Errorf("%d live objects, want 3", live)
	}
	if want := "too many processes (at most 3 per user): events of the rest are counted as lost"; !slices.Contains(s.Warnings, want) {
		t.Errorf("warnings %q", s.Warnings)
	}
}

func TestAllocationsBeyondTheLimitAreCountedAsEvicted(t *testing.T) {
	l := New(Options{MaxLive: 10 * quota.ProcessPart})
	for i := range uint64(25) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, Time: i, Address: i + 1, Size: 10})
	}
	for i := range uint64(25) { // frees of those that had no room are unmatched
		l.Apply(&Event{Op: Free, PID: 1, Time: 30, Address: i + 1})
	}
	// there is room again
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, Time: 31, Address: 1, Size: 10})
	s := l.Snapshot(40, time.Time{})
	if x := s.Sites[0]; s.Stats.Evicted != 15 || s.Stats.UnmatchedFrees != 15 || x.AllocObjects != 26 || x.LiveObjects != 1 {
		t.Errorf("evicted %d, unmatched frees %d, site %+v", s.Stats.Evicted, s.Stats.UnmatchedFrees, x)
	}
}

func TestSitesBeyondTheLimitHaveNoStack(t *testing.T) {
	l := New(Options{})
	const more = 100
	for i := range uint64(maxSites/quota.ProcessPart + more) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, Time: i, Address: i + 1, Size: 10, Stack: i + 1})
	}
	s := l.Snapshot(1<<30, time.Time{})
	var sum, stackless uint64
	for _, x := range s.Sites {
		sum += x.LiveObjects
		if x.Stack == 0 {
			stackless += x.LiveObjects
		}
	}
	if sum != maxSites/quota.ProcessPart+more || stackless != more || len(s.Sites) > maxSites/quota.ProcessPart+1 || len(s.Warnings) != 1 {
		t.Errorf("%d sites, %d live objects, of which %d without a stack; warnings %q", len(s.Sites), sum, stackless, s.Warnings)
	}
}
