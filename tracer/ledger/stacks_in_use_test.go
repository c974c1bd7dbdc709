// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// A stack that any snapshot shows must not be forgotten, whether its process runs, has ended, or is
// packed already.
func TestTheStacksOfEverySnapshotAreInUse(t *testing.T) {
	shown, most := 0, 0
	for _, data := range randomSequences() {
		l, last := applyHostile(t, data, nil)
		last = min(last, 1<<62)
		for _, end := range []func(){
			func() {},
			func() {
				for pid := range uint32(8) {
					l.Apply(&Event{Op: Exit, PID: pid, Time: last})
				}
			},
			func() { l.purge(1 << 63) },
		} {
			end()
			inUse := map[uint64]bool{0: true}
			for from, again := 0, true; again; again = from != 0 {
				from = l.StacksInUse(from, func(id uint64) { inUse[id] = true })
			}
			most = max(most, len(inUse))
			s := l.Snapshot(last, time.Time{})
			l.AddStuck(s)
			l.AddPeaks(s)
			for _, id := range stacksShown(s) {
				shown++
				if !inUse[id] {
					t.Fatalf("stack %d is shown, and not in use", id)
				}
			}
		}
	}
	if shown == 0 || most < 3 {
		t.Errorf("%d stacks were shown, at most %d in use", shown, most)
	}
}

// stacksShown lists the stacks that a snapshot names.
func stacksShown(s *Snapshot) (ids []uint64) {
	for i := range s.Sites {
		ids = append(ids, s.Sites[i].Stack)
		for _, o := range s.Sites[i].Owners {
			ids = append(ids, o.Stack)
		}
	}
	for i := range s.Failures {
		ids = append(ids, s.Failures[i].Stack)
	}
	for i := range s.Objects {
		ids = append(ids, s.Objects[i].Stack)
	}
	for i := range s.Peaks {
		ids = append(ids, stacksShown(s.Peaks[i].Books)...)
		if s.Peaks[i].OOM != nil {
			ids = append(ids, s.Peaks[i].OOM.Stack)
		}
	}
	return ids
}

// With many processes the transaction is given up in between.
func TestStacksInUseComeInParts(t *testing.T) {
	l := New(Options{Begin: 1})
	for i := range uint64(3 * sitesAtOnce) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: uint32(1 + i%100), TID: 1, Time: 2 + i, Address: 1 << 12 * (i + 1), Size: 100, Stack: 1 + i, API: "cudaMalloc"})
	}
	inUse, calls := map[uint64]bool{}, 0
	for from, again := 0, true; again; again = from != 0 {
		from = l.StacksInUse(from, func(id uint64) { inUse[id] = true })
		calls++
	}
	if len(inUse) != 3*sitesAtOnce || calls < 3 {
		t.Errorf("%d stacks in %d calls", len(inUse), calls)
	}
}
