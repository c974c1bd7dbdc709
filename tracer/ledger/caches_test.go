// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// readingOf returns an exact reading of one device with blocks of 1 MiB at these addresses, all of
// one segment, the older ones first.
func readingOf(older, newer []uint64, free ...uint64) *caching.Reading {
	r := &caching.Reading{Arenas: []caching.Arena{{}}}
	add := func(list []uint64, state caching.State, older bool) {
		for _, address := range list {
			r.Blocks = append(r.Blocks, caching.Block{Address: address, Size: 1 << 20, Requested: 1<<20 - 24, State: state, Older: older})
			r.Segments = append(r.Segments, caching.Segment{Address: address, Size: 1 << 20})
		}
	}
	add(older, caching.Active, true)
	add(newer, caching.Active, false)
	add(free, caching.Inactive, false)
	slices.SortFunc(r.Blocks, func(a, b caching.Block) int { return cmp.Compare(a.Address, b.Address) })
	slices.SortFunc(r.Segments, func(a, b caching.Segment) int { return cmp.Compare(a.Address, b.Address) })
	d := caching.Device{Exact: true}
	d.Counters.Allocated.Current = uint64(len(older)+len(newer)) << 20
	d.Counters.Reserved.Current = uint64(len(r.Blocks)) << 20
	r.Devices = []caching.Device{d}
	return r
}

func TestAnAllocatorThatReportsNothingIsKnownByItsReading(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Tell(AllocatorReading{7, 10, readingOf([]uint64{0x100000, 0x200000}, nil, 0x300000)})
	s := l.Snapshot(20, time.Time{})
	if x := s.TensorsOn(0, 0); x == nil || x.Allocated != 2<<20 || x.Reserved != 3<<20 || x.Older != 2<<20 || x.OlderCached != 1<<20 || x.LiveBytes != 0 {
		t.Errorf("tensors %+v", s.Tensors)
	}
	c := s.CacheOn(0, 0)
	if c == nil || c.Time != 10 || c.Cached != 1<<20 || c.Idle != 1<<20 || c.Arenas[0].Older != 2<<20 || c.Requested != 2<<20-48 {
		t.Fatalf("cache %+v", c)
	}
	if o := booksOf(opened(l), 20); differs(booksOf(l, 20), o) != "" {
		t.Error("books from an opening differ: " + differs(booksOf(l, 20), o))
	}
	// The first report since the attach has the same, and counts from then on.
	l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Time: 30, Size: 2 << 20, Handle: 3 << 20})
	l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 30, Address: 0x300000, Size: 1 << 20, Stack: 1, API: "torch", Told: ToldAllocated | ToldLive, Allocated: 3 << 20, Reserved: 3 << 20, Live: 1 << 20})
	if x := l.Snapshot(40, time.Time{}).TensorsOn(0, 0); x.Allocated != 3<<20 || x.Older != 2<<20 || x.LiveBytes != 1<<20 || x.OlderCached != 0 {
		t.Errorf("after its first report: %+v", x)
	}
}

// TestAnAllocatorThatChangesWithoutAReportIsNotTraced: its totals would stay what they were, and
// its tensors would be counted with its segments.
func TestAnAllocatorThatChangesWithoutAReportIsNotTraced(t *testing.T) {
	read := func(l *Ledger, time uint64, blocks ...uint64) {
		l.Tell(AllocatorReading{7, time, readingOf(blocks, nil)})
	}
	segment := func(l *Ledger, time, address uint64) {
		l.Apply(&Event{Op: Alloc, Kind: Device, Space: Addresses, PID: 7, Time: time, Address: address, Size: 1 << 20, Stack: 9, API: "cudaMalloc"})
	}
	for name, play := range map[string]func(l *Ledger){
		"a tensor is freed":         func(l *Ledger) { read(l, 10, 0x100000, 0x200000); read(l, 20, 0x100000) },
		"a segment comes":           func(l *Ledger) { read(l, 10, 0x100000); segment(l, 15, 0x200000); read(l, 20, 0x100000, 0x200000) },
		"all came since the attach": func(l *Ledger) { segment(l, 5, 0x100000); read(l, 10, 0x100000) },
		"it stays so when it is back": func(l *Ledger) {
			read(l, 10, 0x100000, 0x200000)
			read(l, 20, 0x100000)
			read(l, 30, 0x100000, 0x200000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Options{Begin: 1})
			l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
			play(l)
			s := l.Snapshot(40, time.Time{})
			for _, x := range s.Tensors {
				t.Errorf("the books have %+v", x)
			}
			if len(s.Caches) != 1 {
				t.Errorf("caches %+v", s.Caches)
			}
			if d := differs(booksOf(l, 40), booksOf(opened(l), 40)); d != "" {
				t.Error("books from an opening differ: " + d)
			}
		})
	}
}

func TestAReadingOfAnAllocatorInMotionSetsNoTotals(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	r := readingOf([]uint64{0x100000}, nil)
	r.Devices[0].Exact = false
	l.Tell(AllocatorReading{7, 10, r})
	if s := l.Snapshot(20, time.Time{}); len(s.Tensors) != 0 || len(s.Caches) != 1 {
		t.Errorf("tensors %+v, caches %+v", s.Tensors, s.Caches)
	}
}

func TestStoragesOfBeforeTheAttachHaveTheSizeOfTheirBlocks(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(AllocatorReading{7, 25, readingOf([]uint64{0x900000, 0xa00000}, []uint64{0x100000, 0x200000})})
	l.Tell(WalkOpened{PID: 7, Time: 30})
	l.Tell(Walk{PID: 7, Time: 30, Holders: twoHolders, Storages: []Storage{
		{Address: 0x900000, Bytes: 600_000, InMotion: true},             // an older block, of 1 MiB
		{Address: 0xb00000, Bytes: 20 << 20, Holder: 1, InMotion: true}, // nothing is there
	}})
	w := l.Snapshot(40, time.Time{}).LatestWalk(0)
	checkWalk(t, w)
	held := map[string]uint64{}
	for _, h := range w.Held {
		held[h.Path] = h.Older
	}
	if held["model"] != 1<<20 || held["history[*]"] != 9<<20 {
		t.Errorf("holders of 10 MiB from before the attach: %v", held)
	}
	// A later reading lacks the block: what is left is the other's.
	l.Tell(AllocatorReading{7, 50, readingOf([]uint64{0xa00000}, []uint64{0x100000, 0x200000})})
	if w := l.Snapshot(60, time.Time{}).LatestWalk(0); w.Left[0]+w.Left[1] != w.Left[1-indexOfHolder(w, "model")] {
		t.Errorf("after its free: %v of %+v", w.Left, w.Held)
	}
}

func indexOfHolder(w *Walked, path string) int {
	for i := range w.Held {
		if w.Held[i].Path == path {
			return i
		}
	}
	return -1
}

func TestABlockThatTwoExactReadingsLackIsFreed(t *testing.T) {
	without := func() *caching.Reading { return readingOf(nil, []uint64{0x200000}, 0x100000) }
	moving := without()
	moving.Devices[0].Exact = false
	for _, c := range []struct {
		name     string
		readings []*caching.Reading // at 30, 40 and so on
		live     uint64
	}{
		{"two", []*caching.Reading{without(), without()}, 1},
		{"one", []*caching.Reading{without()}, 2},
		{"the second has it again", []*caching.Reading{without(), readingOf(nil, []uint64{0x100000, 0x200000})}, 2},
		{"one is in motion", []*caching.Reading{without(), moving}, 2},
		{"both have it", []*caching.Reading{readingOf(nil, []uint64{0x100000, 0x200000}), readingOf(nil, []uint64{0x100000, 0x200000})}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := walkedBooks(t)
			for i, r := range c.readings {
				l.Tell(AllocatorReading{7, 30 + 10*uint64(i), r})
			}
			p := l.byPID[7]
			if got := p.tensors[0].sampled; got != c.live || p.allocator.repairs.objects != 2-c.live {
				t.Errorf("%d blocks of the sample live, %d repaired, want %d", got, p.allocator.repairs.objects, c.live)
			}
			checkLedger(t, l)
		})
	}
}

func TestABlockThatCameBetweenTwoReadingsStays(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(AllocatorReading{7, 30, readingOf(nil, []uint64{0x100000, 0x200000})})
	l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 35, Address: 0x500000, Size: 1 << 20, Stack: 1, API: "torch"})
	for i := range uint64(2) { // its reports are late
		l.Tell(AllocatorReading{7, 34 + i/2, readingOf(nil, []uint64{0x100000, 0x200000})})
	}
	if got := l.byPID[7].tensors[0].sampled; got != 3 {
		t.Errorf("%d blocks live, want 3", got)
	}
}

func TestReadingsOfAllocatorsAreBoundedAndLeave(t *testing.T) {
	l := walkedBooks(t)
	r := readingOf([]uint64{0x900000}, nil)
	for len(r.Blocks) <= maxListed {
		r.Blocks = append(r.Blocks, r.Blocks...)
	}
	l.Tell(AllocatorReading{7, 30, r})
	if l.listedBlocks != 0 || l.byPID[7].allocator != nil {
		t.Errorf("%d blocks are kept", l.listedBlocks)
	}
	l.Tell(AllocatorReading{7, 40, readingOf([]uint64{0x900000}, nil)})
	if l.listedBlocks != 1 {
		t.Errorf("%d blocks are counted, want 1", l.listedBlocks)
	}
	l.Apply(&Event{Op: Exit, PID: 7, Time: 50})
	l.Apply(&Event{Op: Exit, PID: 9, Time: 50 + 2*grace})
	if l.listedBlocks != 0 {
		t.Errorf("%d blocks are counted after the end of the process", l.listedBlocks)
	}
}

// TestSegmentsWhoseEventsWereLostAreRepaired: a segment that came without an event is booked, one
// that went without one is freed, and those of before the attach stay what they are.
func TestSegmentsWhoseEventsWereLostAreRepaired(t *testing.T) {
	const older, lost, gone, kept = 0x900000, 0xa00000, 0xb00000, 0xc00000
	for _, lossy := range []bool{true, false} {
		l := walkedBooks(t)
		alloc := func(address uint64) {
			l.Apply(&Event{Op: Alloc, Kind: Device, Space: Addresses, PID: 7, Time: 24, Address: address, Size: 1 << 20, Stack: 9, API: "cudaMalloc"})
		}
		alloc(gone)
		alloc(kept)
		l.Tell(Segments{9})
		l.Tell(AllocatorReading{7, 25, readingOf([]uint64{older}, []uint64{0x100000, 0x200000, gone, kept})})
		if lossy {
			l.Tell(Stats{Lost: 1, LostBy: map[uint32]uint64{7: 1}})
		}
		for i := range uint64(2) {
			l.Tell(AllocatorReading{7, 30 + i, readingOf([]uint64{older}, []uint64{0x100000, 0x200000, lost, kept})})
			s := l.Snapshot(40, time.Time{})
			live := map[uint64]bool{}
			for key := range l.byPID[7].live {
				live[key.address] = key.space == Addresses || live[key.address]
			}
			repaired := lossy && i == 1
			if live[lost] != repaired || live[gone] == repaired || !live[kept] || live[older] {
				t.Errorf("lossy %v, reading %d: live %v", lossy, i, live)
			}
			if c := s.CacheOn(0, 0); repaired != (c.Repaired == 2 && c.RepairedBytes == 2<<20) || !repaired && c.Repaired != 0 {
				t.Errorf("lossy %v, reading %d: %d repaired with %d bytes", lossy, i, c.Repaired, c.RepairedBytes)
			}
			if d := differs(booksOf(l, 40), booksOf(opened(l), 40)); d != "" {
				t.Error("books from an opening differ: " + d)
			}
		}
		checkLedger(t, l)
	}
}

// TestBlocksWhoseEventsWereLostAreRepaired: in two readings, a block that had an event comes
// without its stack, and one whose address now has another size is replaced. Blocks without an
// event of their own stay in the totals alone.
func TestBlocksWhoseEventsWereLostAreRepaired(t *testing.T) {
	const lost, resized, unsampled = 0x500000, 0x200000, 0x600000
	for _, lossy := range []bool{true, false} {
		l := walkedBooks(t)
		if lossy {
			l.Tell(Stats{Lost: 1, LostBy: map[uint32]uint64{7: 1}})
		}
		for i := range uint64(2) {
			r := readingOf(nil, []uint64{0x100000, resized, lost, unsampled})
			for k := range r.Blocks {
				b := &r.Blocks[k]
				if b.Sampled = b.Address != unsampled; b.Address == resized {
					b.Size -= 512
				}
			}
			l.Tell(AllocatorReading{7, 30 + i, r})
			p := l.byPID[7]
			sizes := map[uint64]uint64{}
			for key, n := range p.live {
				if key.space == Blocks {
					sizes[key.address] = p.entries.at(n).size
				}
			}
			repaired := lossy && i == 1
			if (sizes[lost] == 1<<20) != repaired || (sizes[resized] == 1<<20-512) != repaired || sizes[unsampled] != 0 || sizes[0x100000] != 1<<20 {
				t.Errorf("lossy %v, reading %d: sizes %v", lossy, i, sizes)
			}
			if n := p.allocator.repairs.objects; repaired != (n == 3) {
				t.Errorf("lossy %v, reading %d: %d repaired", lossy, i, n)
			}
			if d := differs(booksOf(l, 40), booksOf(opened(l), 40)); d != "" {
				t.Error("books from an opening differ: " + d)
			}
		}
		checkLedger(t, l)
	}
}

// TestSegmentsOfAProcessThatBeganLaterAreNotOlder: those that its first reading shows and the books
// lack were lost.
func TestSegmentsOfAProcessThatBeganLaterAreNotOlder(t *testing.T) {
	for begin, want := range map[uint64]bool{1: false, 5: true} {
		l := New(Options{Begin: 1})
		l.Tell(Process{PID: 7, Comm: "python3", Begin: begin})
		l.Tell(Stats{Lost: 1, LostBy: map[uint32]uint64{7: 1}})
		for i := range uint64(2) {
			l.Tell(AllocatorReading{7, 30 + i, readingOf(nil, []uint64{0x100000})})
		}
		if _, booked := l.byPID[7].live[liveKey{0x100000, Addresses}]; booked != want {
			t.Errorf("of a process that began at %d: booked %v", begin, booked)
		}
	}
}

// TestAPrivatePoolIsKnownByTheStackOfItsOldestSegment: of those that were seen; another pool has
// none.
func TestAPrivatePoolIsKnownByTheStackOfItsOldestSegment(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	for i, address := range []uint64{0x300000, 0x200000, 0x400000} {
		l.Apply(&Event{Op: Alloc, Kind: Device, Space: Addresses, PID: 7, Time: 10 + uint64(i), Address: address, Size: 1 << 20, Stack: 21 + uint64(i), API: "cudaMalloc"})
	}
	r := readingOf([]uint64{0x100000}, []uint64{0x200000, 0x300000, 0x400000, 0x500000})
	graph, other := caching.PoolID{3, 0}, caching.PoolID{0, 4}
	r.Arenas = []caching.Arena{{}, {Pool: graph}, {Pool: other}}
	for i, arena := range []uint16{1, 1, 1, 0, 2} {
		r.Segments[i].Arena, r.Blocks[i].Arena = arena, arena
	}
	l.Tell(AllocatorReading{7, 30, r})
	got := l.Snapshot(40, time.Time{}).CacheOn(0, 0).Origins
	if want := []PoolOrigin{{Pool: graph, Stack: 21, API: "cudaMalloc", Time: 10}}; !slices.Equal(got, want) {
		t.Errorf("origins %+v, want %+v", got, want)
	}
}

// TestAPoolIsDividedByTheGraphsThatWereCapturedIntoIt: each has what was allocated since the one
// before it. What came after the last graph is of none.
func TestAPoolIsDividedByTheGraphsThatWereCapturedIntoIt(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	segment := func(time, address uint64) {
		l.Apply(&Event{Op: Alloc, Kind: Device, Space: Addresses, PID: 7, Time: time, Address: address, Size: 1 << 20, Stack: 20, API: "cudaMalloc"})
	}
	graph := func(time, handle, stack uint64) {
		l.Apply(&Event{Op: ObjectCreate, Kind: GraphExec, PID: 7, Time: time, Address: handle, Stack: stack, API: "cudaGraphInstantiate"})
	}
	segment(10, 0x100000)
	segment(11, 0x200000)
	graph(12, 0xa0, 31)
	graph(13, 0xa1, 32) // finds room in what the pool has
	segment(14, 0x300000)
	segment(15, 0x500000)
	graph(16, 0xa2, 33)
	segment(17, 0x400000)
	r := readingOf(nil, []uint64{0x100000, 0x200000, 0x300000, 0x400000, 0x500000})
	pool := caching.PoolID{3, 0}
	r.Arenas = []caching.Arena{{}, {Pool: pool}, {Pool: caching.PoolID{0, 4}}}
	for i, arena := range []uint16{1, 1, 1, 1, 0} {
		r.Segments[i].Arena, r.Blocks[i].Arena = arena, arena
	}
	l.Tell(AllocatorReading{7, 30, r})
	want := []PoolCapture{{pool, 0, 31, "cudaGraphInstantiate", 12, 2 << 20}, {pool, 0, 33, "cudaGraphInstantiate", 16, 1 << 20}}
	if got := l.Snapshot(40, time.Time{}).CacheOn(0, 0).Captures; !slices.Equal(got, want) {
		t.Errorf("captures %+v, want %+v", got, want)
	}
	l.Apply(&Event{Op: ObjectEnd, Kind: GraphExec, PID: 7, Time: 41, Address: 0xa2})
	if got := l.Snapshot(42, time.Time{}).CacheOn(0, 0).Captures; !slices.Equal(got, want[:1]) {
		t.Errorf("after the last graph was destroyed: %+v", got)
	}
}

// TestBlocksOnOtherStreamsAreKnownByTheirStack: of stacks that have few live blocks, as workspaces
// do.
func TestBlocksOnOtherStreamsAreKnownByTheirStack(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	r := &caching.Reading{Devices: []caching.Device{{Exact: true}}, Arenas: []caching.Arena{{}, {Stream: 0x55}, {Stream: 0x77}}}
	block := func(stack uint64, arena uint16) {
		address := uint64(0x100000 * (1 + len(r.Blocks)))
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 10, Address: address, Size: 1 << 20, Stack: stack, API: "torch"})
		r.Segments = append(r.Segments, caching.Segment{Address: address, Size: 1 << 20, Arena: arena})
		r.Blocks = append(r.Blocks, caching.Block{Address: address, Size: 1 << 20, Requested: 1 << 20, Arena: arena, State: caching.Active})
	}
	for range 20 {
		block(30, 0) // on the main stream
	}
	block(31, 0)
	block(31, 1)
	block(31, 1)
	block(31, 2)
	block(32, 2)
	for range maxStreamed + 1 {
		block(33, 1)
	}
	l.Tell(AllocatorReading{7, 30, r})
	got := l.Snapshot(40, time.Time{}).CacheOn(0, 0).OnStreams
	if want := []StackStream{{31, 0x55, 2 << 20}, {31, 0x77, 1 << 20}, {32, 0x77, 1 << 20}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
