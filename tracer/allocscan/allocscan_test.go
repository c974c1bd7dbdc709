// SPDX-License-Identifier: Apache-2.0

package allocscan

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

const mib = 1 << 20

// at is a snapshot of one device with a segment of two live blocks and a free one.
func at(from uint64) *allocator.Snapshot {
	s := &allocator.Snapshot{
		Segments: []allocator.Segment{{Address: 0x100000, Size: 3 * mib}},
		Devices:  []allocator.Device{{Exact: true, From: from, To: from + 5}},
	}
	for i, state := range []allocator.State{allocator.Active, allocator.Active, allocator.Inactive} {
		s.Blocks = append(s.Blocks, allocator.Block{Address: 0x100000 * uint64(1+i), Size: mib, Requested: mib - 8, State: state})
	}
	k := &s.Devices[0].Counters
	k.Allocated.Current, k.Reserved.Current = 2*mib, 3*mib
	return s
}

// scanner returns a Scanner of process 7, whose reads answer in turn, the last one each further
// time, and its books.
func scanner(t *testing.T, given []ledger.Block, answers ...any) (s *Scanner, reads *int, books func() *ledger.Snapshot) {
	t.Helper()
	l := ledger.New(ledger.Options{Begin: 1})
	l.Tell(ledger.Process{PID: 7, Begin: 1})
	var defects panics.List
	s = New(Options{
		Sequencer: sequence.New(l, nil, &defects), Defects: &defects,
		Traced: func() []uint32 { return []uint32{7} }, HasTorch: func(uint32) bool { return false }, Tables: func(uint32, time.Duration) []Table { return nil },
	})
	reads = new(int)
	s.read = func(uint32) (*reading, error) {
		a := answers[min(*reads, len(answers)-1)]
		*reads++
		if err, failed := a.(error); failed {
			return nil, err
		}
		return readingOf(a.(*allocator.Snapshot), []Table{{Blocks: given}}, nil), nil
	}
	return s, reads, func() *ledger.Snapshot { return l.Snapshot(100, time.Time{}) }
}

func TestBlocksThatNoEventGaveOutAreOlder(t *testing.T) {
	s, _, books := scanner(t, []ledger.Block{{Address: 0x200000, Size: mib}}, at(10))
	s.Refresh()
	c := books().CacheOn(0, 0)
	if c == nil || c.Time != 10 || c.Allocated != 2*mib || c.Cached != mib || len(c.Arenas) != 1 || c.Arenas[0].Older != mib || !c.Exact || c.Requested != 2*mib-16 {
		t.Errorf("cache %+v", c)
	}
}

func TestAProcessIsReadSoonAndThenSeldom(t *testing.T) {
	s, reads, _ := scanner(t, nil, at(10))
	for range 5 {
		s.Refresh()
	}
	if *reads != 1 {
		t.Errorf("read %d times within a moment", *reads)
	}
	if s.Last(t.Context()); *reads != 2 {
		t.Errorf("not read at the end")
	}
	s.known[7].next = time.Now()
	if s.scan(t.Context(), isDue); *reads != 3 {
		t.Error("not read after the pause")
	}
}

func TestAProcessWithoutAnAllocatorIsTriedEverMoreSeldom(t *testing.T) {
	s, reads, books := scanner(t, nil, errors.New("nothing"), errors.New("nothing"), at(10))
	var pauses []time.Duration
	for range 3 {
		s.Refresh()
		s.Refresh() // too soon
		pauses = append(pauses, time.Until(s.known[7].next).Round(100*time.Millisecond))
		s.known[7].next = time.Now()
	}
	if *reads != 3 || pauses[0] != firstPause || pauses[1] != 2*firstPause || len(books().Caches) != 1 {
		t.Errorf("%d reads, pauses %v, caches %+v", *reads, pauses, books().Caches)
	}
	wait := s.Now(7)
	if wait(); *reads != 4 {
		t.Error("not read at an out-of-memory error")
	}
	if s.Now(8)(); *reads != 4 {
		t.Error("an unknown process was read")
	}
}

func TestAReadingWithTooManyArenasIsNotExact(t *testing.T) {
	x := at(10)
	for i := range uint64(caching.MaxArenas) {
		x.Segments = append(x.Segments, allocator.Segment{Address: 0x10000000 + i*mib, Size: mib, Stream: 1 + i})
	}
	r := readingOf(x, nil, nil).bookable()
	if len(r.Arenas) != caching.MaxArenas || r.Sure() {
		t.Errorf("%d arenas, exact %v", len(r.Arenas), r.Sure())
	}
	for _, b := range r.Blocks {
		if int(b.Arena) >= len(r.Arenas) {
			t.Fatalf("block %+v", b)
		}
	}
}

func TestBlocksThatOverlapAreLeftOut(t *testing.T) {
	x := at(10)
	x.Blocks[1].Address = 0x180000 // within the first
	x.Segments = append(x.Segments, allocator.Segment{Address: 0x200000, Size: mib}, allocator.Segment{Address: 1 << 60, Size: mib})
	r := readingOf(x, nil, nil).bookable()
	if len(r.Blocks) != 2 || r.Blocks[1].Address != 0x300000 || len(r.Segments) != 1 || r.Sure() {
		t.Errorf("%d segments, blocks %+v, exact %v", len(r.Segments), r.Blocks, r.Sure())
	}
}

func TestAProcessWithoutPyTorchIsTriedOnceMoreWhenItReportsTensors(t *testing.T) {
	s, reads, _ := scanner(t, nil, &allocator.Error{Code: allocator.NoLibrary})
	torch := false
	s.HasTorch = func(uint32) bool { return torch }
	for range 30 {
		s.known[7] = cmp.Or(s.known[7], &target{})
		s.known[7].next = time.Now()
		s.scan(t.Context(), isDue)
	}
	if left := time.Until(s.known[7].next); *reads != 30 || left < absentPause-time.Minute {
		t.Errorf("%d reads, the next in %v", *reads, left)
	}
	torch = true
	for range 5 {
		s.scan(t.Context(), isDue)
	}
	if *reads != 31 && *reads != 32 {
		t.Errorf("%d reads after its first tensor", *reads)
	}
}
