// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"runtime"
	"testing"
	"time"
)

// TestArchivedSitesAreShownAsBefore ends all processes of random books and waits until they are
// archived. Only pools and the values between two steps of a history are lost.
func TestArchivedSitesAreShownAsBefore(t *testing.T) {
	archived, presumed := 0, false
	for _, data := range randomSequences() {
		l, last := applyHostile(t, data, nil)
		last = min(last, 1<<62)
		for pid := range uint32(8) {
			l.Apply(&Event{Op: Exit, PID: pid, Time: last})
		}
		before := l.Snapshot(last, time.Time{})
		l.purge(1 << 63)
		l.MarkSegments(func(uint64) bool { return false })
		after := l.Snapshot(last, time.Time{})
		for i := range l.procs {
			archived += len(l.procs[i].archived)
		}
		if again := l.Snapshot(last, time.Time{}); !reflect.DeepEqual(after, again) {
			t.Fatal("two snapshots of the same books differ")
		}
		for _, s := range []*Snapshot{before, after} {
			s.Pools = nil
			for i := range s.Sites {
				s.Sites[i].Growth = 0
				presumed = presumed || s.Sites[i].Presumed != nil
				clear(s.Sites[i].History[:HistoryLen-1])
			}
		}
		if !reflect.DeepEqual(before, after) {
			for i := range before.Sites {
				if !reflect.DeepEqual(before.Sites[i], after.Sites[i]) {
					t.Fatalf("site %+v\nwas  %+v", after.Sites[i], before.Sites[i])
				}
			}
			t.Fatalf("got  %+v\nwant %+v", after, before)
		}
		checkLedger(t, l)
	}
	if archived == 0 || !presumed {
		t.Errorf("%d bytes were archived, presumed: %v", archived, presumed)
	}
}

// TestHistoryOfAnArchivedSiteIsKept for a process that lived as long as the session: each step is
// right.
func TestHistoryOfAnArchivedSiteIsKept(t *testing.T) {
	l := New(Options{Begin: 1})
	for i := range uint64(600) {
		at := 1 + i*1e9
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, TID: 1, Time: at, Address: 1 << 20 * (i + 1), Size: 1000, Stack: 5, API: "cudaMalloc"})
	}
	l.Apply(&Event{Op: Exit, PID: 1, Time: 600e9})
	before := l.Snapshot(600e9, time.Time{})
	l.purge(700e9)
	after := l.Snapshot(600e9, time.Time{})
	for i, want := range before.Sites[0].History {
		// half of a step
		if got := after.Sites[0].History[i]; max(got, want)-min(got, want) > 10_000 {
			t.Errorf("step %d: %d bytes, before %d", i, got, want)
		}
	}
}

// TestEndedProcessesTakeLittleRoom: books of very many short processes.
func TestEndedProcessesTakeLittleRoom(t *testing.T) {
	const processes, sites = 5000, 8
	l := New(Options{Begin: 1})
	run := func(from uint32) {
		for pid := from; pid < from+processes; pid++ {
			at := uint64(pid) * 1e8
			for i := range uint64(sites * 20) {
				l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Time: at, Address: 1 << 20 * (i + 1), Size: 1 << 16, Stack: i%sites + 1, API: "cudaMalloc"})
				at += 5e6
			}
			for i := range uint64(sites * 20) {
				l.Apply(&Event{Op: Free, Kind: Device, PID: pid, TID: pid, Time: at, Address: 1 << 20 * (i + 1)})
			}
			l.Apply(&Event{Op: Exit, PID: pid, Time: at})
		}
	}
	run(1)
	before := heapBytes()
	run(1 + processes)
	each := (heapBytes() - before) / processes
	packed := 0
	for i := range l.procs {
		packed += len(l.procs[i].archived)
	}
	t.Logf("%d bytes for each process of %d sites, %d for each site that is packed", each, sites, packed/(2*processes*sites))
	if each > 9<<9 {
		t.Errorf("%d bytes for each process that ended", each)
	}
	if n := sitesIn(l); n > 200*sites {
		t.Errorf("%d places for sites, of some 60 processes at a time", n)
	}
	runtime.KeepAlive(l)
}
