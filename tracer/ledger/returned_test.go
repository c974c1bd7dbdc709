// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// TestAFreeOfASegmentFromBeforeTheAttachHasItsSize: torch.cuda.empty_cache gives segments back and
// reports nothing. A reading from before that has their sizes.
func TestAFreeOfASegmentFromBeforeTheAttachHasItsSize(t *testing.T) {
	const kept, idle, other = 0x100000, 0x200000, 0x300000
	free := func(l *Ledger, time, address uint64) {
		l.Apply(&Event{Op: Free, Space: Addresses, PID: 7, TID: 7, Time: time, Address: address})
	}
	for _, reports := range []bool{true, false} { // whether the allocator has reported since the attach
		l := New(Options{Begin: 1})
		l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
		if reports {
			l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Time: 5, Size: 1 << 20, Handle: 3 << 20})
		}
		l.Tell(AllocatorReading{7, 10, readingOf([]uint64{kept}, nil, idle, other)})
		check := func(when string, reserved, unmatched uint64) {
			t.Helper()
			s := l.Snapshot(100, time.Time{})
			x := s.TensorsOn(0, 0)
			if x == nil || x.Reserved != reserved || x.Older != 1<<20 || x.OlderCached != reserved-1<<20 || s.Stats.UnmatchedFrees != unmatched {
				t.Errorf("reports %v, %s: %+v, %d unmatched; want %d reserved, %d unmatched", reports, when, x, s.Stats.UnmatchedFrees, reserved, unmatched)
			}
			if d := differs(booksOf(l, 100), booksOf(opened(l), 100)); d != "" {
				t.Error("books from an opening differ: " + d)
			}
		}
		free(l, 20, idle)
		check("after the free", 2<<20, 0)
		free(l, 21, other)
		l.Apply(&Event{Op: FreeFailed, Space: Addresses, PID: 7, TID: 7, Time: 22, Address: other, Result: 1})
		check("after a free that failed", 2<<20, 0)
		free(l, 23, idle)
		check("after a second free of the address", 2<<20, 1)
		free(l, 24, 0x900000)
		check("after a free of what no reading has", 2<<20, 2)
		l.Tell(AllocatorReading{7, 30, readingOf([]uint64{kept}, nil, other)})
		check("after the next reading", 2<<20, 2)
		free(l, 40, other)
		check("after the last", 1<<20, 2)
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 50, Address: kept + 512, Size: 0, API: "torch", Told: ToldAllocated | ToldLive, Allocated: 1 << 20, Reserved: 1 << 20})
		check("after a report that has it", 1<<20, 2)
		checkLedger(t, l)
	}
}
