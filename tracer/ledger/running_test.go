// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestRunningIsTheSnapshotWithoutWhatHasEnded: processes that ended with and without memory, with
// failures, pools and tensors.
func TestRunningIsTheSnapshotWithoutWhatHasEnded(t *testing.T) {
	l := New(Options{Begin: 1})
	for pid := uint32(1); pid <= 6; pid++ {
		at := uint64(pid) << 32
		l.Tell(Process{PID: pid, Comm: "p", Begin: 1})
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, TID: pid, Time: 2, Address: at, Size: 1 << 20, Stack: uint64(pid), API: "cudaMalloc"})
		l.Apply(&Event{Op: Alloc, Kind: Async, PID: pid, TID: pid, Time: 3, Address: at + 1<<21, Size: 100, Stack: 9, API: "cudaMallocAsync"})
		l.Apply(&Event{Op: AllocFailed, Kind: Device, PID: pid, TID: pid, Time: 4, Size: 5, Stack: 7, Result: 2, API: "cudaMalloc"})
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: pid, TID: pid, Time: 5, Address: at + 64, Size: 512, Stack: 8, API: "torch"})
		l.Tell(TensorReading{Time: 6, Totals: []TensorTotals{{PID: pid, Reported: 5, Allocated: 512, Reserved: 1 << 20, Classes: blocksOfClass(512, 1)}}})
		if pid%2 == 0 {
			l.Apply(&Event{Op: Exit, PID: pid, TID: pid, Time: 7})
		}
	}
	got, want := l.Running(10, time.Time{}), l.Snapshot(10, time.Time{})
	if len(got.Processes) != 3 || len(want.Processes) != 6 || len(got.Sites) == 0 || len(got.Failures) != 3 || len(got.Tensors) != 3 {
		t.Fatalf("%d processes, %d sites, %d failures, %d tensors", len(got.Processes), len(got.Sites), len(got.Failures), len(got.Tensors))
	}
	// want without the others, and with the indexes of what is left.
	index, kept := make([]int, len(want.Processes)), want.Processes[:0:0]
	for i, p := range want.Processes {
		index[i] = -1
		if p.End == 0 {
			index[i] = len(kept)
			kept = append(kept, p)
		}
	}
	want.Processes = kept
	want.Sites = ofRunning(want.Sites, index, func(s *Site) *int { return &s.Process })
	want.Failures = ofRunning(want.Failures, index, func(f *Failure) *int { return &f.Process })
	want.Pools = ofRunning(want.Pools, index, func(p *Pool) *int { return &p.Process })
	want.Tensors = ofRunning(want.Tensors, index, func(x *Tensors) *int { return &x.Process })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func ofRunning[T any](list []T, index []int, process func(*T) *int) []T {
	list = slices.DeleteFunc(list, func(x T) bool { return index[*process(&x)] < 0 })
	for i := range list {
		p := process(&list[i])
		*p = index[*p]
	}
	return list
}

func blocksOfClass(size, n uint64) []ClassTotals {
	list := make([]ClassTotals, SizeClasses)
	list[SizeClass(size)] = ClassTotals{Allocs: n, AllocBytes: n * size}
	return list
}
