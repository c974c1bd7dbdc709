// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

const month = uint64(30 * 24 * time.Hour)

// leaking returns books of a process that began so long after the session and leaks for a minute.
func leaking(begin uint64, ends bool) (*Ledger, *Snapshot) {
	l := New(Options{Begin: 1e9})
	at := 1e9 + begin
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 3, Time: 2e9, Address: 1, Size: 5, Stack: 9, API: "cudaMalloc"}) // a daemon
	for i := range uint64(6000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: at + i*1e7, Address: i + 1, Size: 1 << 20, Stack: 1, API: "cudaMalloc"})
		if i%4 != 0 {
			l.Apply(&Event{Op: Free, PID: 7, Time: at + i*1e7 + 5e6, Address: i + 1})
		}
	}
	end := at + 60e9
	if ends {
		l.Apply(&Event{Op: Exit, PID: 7, Time: end})
		l.purge(end + grace)
	}
	return l, l.Snapshot(end, time.Time{})
}

// TestAProcessThatBeginsAfterAMonthIsShownInAsMuchDetail as one that begins at once.
func TestAProcessThatBeginsAfterAMonthIsShownInAsMuchDetail(t *testing.T) {
	siteOf := func(s *Snapshot) *Site {
		for i := range s.Sites {
			if s.Processes[s.Sites[i].Process].PID == 7 {
				return &s.Sites[i]
			}
		}
		t.Fatal("no site")
		return nil
	}
	for _, ends := range []bool{false, true} {
		_, soon := leaking(0, ends)
		_, late := leaking(month, ends)
		a, b := siteOf(soon), siteOf(late)
		if half := late.GrowthSpan(b.Process); half != 30e9 {
			t.Errorf("growth is over %d ns", half)
		}
		near := func(x, y uint64) bool { return max(x, y)-min(x, y) <= 1500<<20/12 }
		for i := range a.History {
			if !near(a.History[i], b.History[i]) {
				t.Errorf("ended %v: step %d: %d bytes, at once %d", ends, i, b.History[i], a.History[i])
			}
		}
		if !near(uint64(a.Growth), uint64(b.Growth)) || !near(uint64(b.Growth), 750<<20) {
			t.Errorf("ended %v: growth %d, at once %d", ends, b.Growth, a.Growth)
		}
		if a.LiveBytes != b.LiveBytes || a.Peak != b.Peak || a.Window != b.Window {
			t.Errorf("ended %v: %+v\nat once %+v", ends, b, a)
		}
		// windows begin at multiples of their length: the same allocations may lie in one more
		if n := len(b.Cohorts) - len(a.Cohorts); n < -1 || n > 1 {
			t.Errorf("ended %v: %d cohorts, at once %d", ends, len(b.Cohorts), len(a.Cohorts))
		}
	}
}

// TestBooksOfAYearStayRight: no count of a session overflows.
func TestBooksOfAYearStayRight(t *testing.T) {
	l, _ := leaking(12*month, false)
	at := 1e9 + 12*month + 100e9
	for i := range uint64(8) {
		pid := uint32(100 + i)
		l.Apply(&Event{Op: ContextRetain, PID: pid, Time: at, Context: 5, API: "a"})
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Time: at, Address: 1, Size: 10, Context: 5, Stack: 1, API: "cudaMalloc"})
		l.Apply(&Event{Op: Free, PID: pid, TID: pid, Time: at, Address: 1})
		l.Apply(&Event{Op: FreeFailed, PID: pid, TID: pid, Time: at, Address: 1, Result: 1})
		if n := l.byPID[pid].totals[1].LiveObjects; n != 1 {
			t.Errorf("process %d: %d allocations live, a free failed", pid, n)
		}
		l.Apply(&Event{Op: ContextDestroy, PID: pid, Time: at + 1, Context: 5})
		if n := l.byPID[pid].totals[1].LiveObjects; n != 0 {
			t.Errorf("process %d: %d allocations live, the context ended", pid, n)
		}
	}
	checkLedger(t, l)
}
