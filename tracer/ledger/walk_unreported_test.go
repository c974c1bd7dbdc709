// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// TestTensorsThatNoAllocatorReportsKeepTheirBytes: where tensors are not traced, a walk finds some
// in segments since the attach and some in older ones. All of them are there.
func TestTensorsThatNoAllocatorReportsKeepTheirBytes(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Device: 0, Time: 10, Address: 1 << 40, Size: 512 * mib, Stack: 4, API: "cudaMalloc"})
	l.Tell(Segments{4})
	l.Tell(WalkOpened{PID: 7, Time: 30})
	l.Tell(Walk{PID: 7, Time: 30, Holders: []Holder{{Path: "kept[*]", Found: true}, {Path: "model.*.weight", Found: true}}, Storages: []Storage{
		{Address: 1 << 40, Bytes: 300 * mib},
		{Address: 1 << 30, Bytes: 50 * mib},
		{Address: 1 << 32, Bytes: 100 * mib, Holder: 1},
	}})
	w := l.Snapshot(40, time.Time{}).LatestWalk(0)
	if len(w.Held) != 2 || w.Held[0].Bytes != 350*mib || w.Held[0].Older != 50*mib || w.Held[1].Bytes != 100*mib {
		t.Errorf("held are %+v", w.Held)
	}
	if a := w.Allocators; len(a) != 1 || !a[0].Unreported || a[0].Allocated != 450*mib || a[0].Held != 450*mib || a[0].Excess != 0 {
		t.Errorf("totals are %+v", a)
	}
}

// TestATensorOfCudaMallocAsyncIsNotOlder: PyTorch's allocator reports nothing with that backend,
// and the driver's allocation is the tensor, also when it is freed before the walk ends.
func TestATensorOfCudaMallocAsyncIsNotOlder(t *testing.T) {
	for _, freed := range []bool{false, true} {
		l := New(Options{Begin: 1})
		l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
		l.Apply(&Event{Op: Alloc, Kind: Async, PID: 7, Device: 0, Time: 10, Address: 1 << 40, Size: 34 * mib, Stack: 4, API: "cudaMallocAsync"})
		l.Tell(WalkOpened{PID: 7, Time: 30})
		if freed {
			l.Apply(&Event{Op: Free, Kind: Async, PID: 7, Time: 31, Address: 1 << 40})
		}
		l.Tell(Walk{PID: 7, Time: 30, Holders: []Holder{{Path: "x", Found: true}}, Storages: []Storage{{Address: 1 << 40, Bytes: 34 * mib}}})
		s := l.Snapshot(40, time.Time{})
		if w := s.LatestWalk(0); len(w.Held) != 1 || w.Held[0].Older != 0 || w.Held[0].Bytes != 34*mib || len(w.Allocators) != 0 {
			t.Errorf("freed %v: held are %+v, totals %+v", freed, w.Held, w.Allocators)
		}
	}
}
