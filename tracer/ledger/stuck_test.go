// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// checkStuck: sets add up to their allocator's figures, and nothing exceeds the cache.
func checkStuck(t *testing.T, s *Snapshot) {
	t.Helper()
	for _, x := range s.Stuck {
		var sum StuckSet
		for _, set := range x.Sets {
			sum.Segments += set.Segments
			sum.Bytes += set.Bytes
			sum.Free += set.Free
			if len(set.By) == 0 || len(set.By) > maxStuckBy || set.Segments == 0 || set.Free > set.Bytes {
				t.Errorf("set %+v", set)
			}
		}
		if sum.Segments != x.Segments || sum.Bytes != x.Bytes || sum.Free != x.Free {
			t.Errorf("sets add up to %+v, want %d segments with %d bytes, %d free", sum, x.Segments, x.Bytes, x.Free)
		}
		cached := s.TensorsOn(x.Process, x.Device)
		if cached == nil || x.Free > cached.Cached || x.Idle > cached.Cached-x.Free || cached.Cached > cached.Reserved-min(cached.Allocated, cached.Reserved) && cached.Asleep == 0 {
			t.Errorf("%d bytes are stuck and %d idle, of %+v", x.Free, x.Idle, cached)
		}
	}
}

// stuckTruth is what an allocator really has in the segments that it took since the attach.
func stuckTruth(f *fakeAllocator) (want Stuck, alone map[uint64]uint64) {
	alone = map[uint64]uint64{}
	for _, x := range f.segments {
		if x.older {
			continue
		}
		size, inside, stack, several := x.end-x.start, uint64(0), uint64(0), false
		for _, b := range f.blocks {
			if part := minus(min(b.start+b.size, x.end), max(b.start, x.start)); part > 0 {
				several = several || stack != 0 && stack != b.stack
				inside, stack = inside+part, b.stack
			}
		}
		switch {
		case inside == 0:
			want.Idle += size
		case inside < size:
			want.Segments++
			want.Bytes += size
			want.Free += size - inside
		}
		if inside > 0 && !several {
			alone[stack] += size
		}
	}
	return want, alone
}

func TestStuckMemoryIsWhatSegmentsWithLiveBlocksHaveFree(t *testing.T) {
	some := 0
	for seed := range uint64(30) {
		j := newFakeJob(seed, []float64{1, 0.5, 0.1}[seed%3])
		for range 15 {
			for range 60 {
				j.step()
			}
			j.read()
			s := j.l.Snapshot(j.now, time.Time{})
			j.l.AddStuck(s)
			checkStuck(t, s)
			for _, x := range s.Stuck {
				want, _ := stuckTruth(j.allocators[x.Device])
				if x.Segments != want.Segments || x.Bytes != want.Bytes || x.Free != want.Free || x.Idle != want.Idle || x.Unlisted != 0 || x.Outdated != 0 {
					t.Errorf("seed %d: got %d segments with %d bytes, %d free, %d idle, %d unlisted, %d outdated; want %+v", seed, x.Segments, x.Bytes, x.Free, x.Idle, x.Unlisted, x.Outdated, want)
				}
				some += int(x.Segments)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	if some == 0 {
		t.Error("nothing was stuck")
	}
}

// TestSegmentsGoBackWhenTheBlocksThatAloneHoldThemAreFreed does what the figures promise.
func TestSegmentsGoBackWhenTheBlocksThatAloneHoldThemAreFreed(t *testing.T) {
	checked := 0
	for seed := range uint64(40) {
		j := newFakeJob(seed, 1)
		for range 300 {
			j.step()
		}
		j.read()
		s := j.l.Snapshot(j.now, time.Time{})
		j.l.AddStuck(s)
		for _, x := range s.Stuck {
			if len(x.Sets) == 0 || len(x.Sets[0].By) != 1 {
				continue
			}
			f, set := j.allocators[x.Device], x.Sets[0]
			_, alone := stuckTruth(f)
			before := slices.Clone(f.segments)
			for i := len(f.blocks) - 1; i >= 0; i-- {
				if !f.blocks[i].older && f.blocks[i].stack == set.By[0].Stack {
					f.free(i)
				}
			}
			f.emptyCache()
			back := uint64(0)
			for _, x := range before {
				if !x.older && !slices.Contains(f.segments, x) {
					back += x.end - x.start
				}
			}
			// alone has full segments too, of which no cache is stuck
			if back < set.Bytes+x.Idle || back != alone[set.By[0].Stack]+x.Idle {
				t.Errorf("seed %d: stack %d has %d bytes of segments, and %d are idle: %d went back", seed, set.By[0].Stack, set.Bytes, x.Idle, back)
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("checked only %d sets", checked)
	}
}

// stuckBooks has two segments of 4096 bytes. Stack 2 has a block in both, stack 3 in the second,
// and one block of 512 bytes is outside of the sample.
const stuckBooks = `
devices GPU-a
sampling 0.5
alloc t=2 addr=1000 size=4096 stack=1 dev=0
alloc t=2 addr=9000 size=4096 stack=1 dev=0
alloc t=2 addr=20000 size=4096 stack=1 dev=0
allocator t=3 dev=0 handle=3000
alloc t=3 addr=1000 size=1024 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=9000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=9400 size=512 stack=3 dev=0 kind=tensor space=blocks api=torch
segments 1
totals t=7 dev=0 allocated=2560 reserved=12288 512:3/1536-0/0 1024:1/1024-0/0
blocks 1000+1024 1800+512 9000+512 9400+512
`

func stuckOf(t *testing.T, l *Ledger) (*Snapshot, Stuck) {
	t.Helper()
	s := l.Snapshot(9e9, time.Time{})
	l.AddStuck(s)
	checkStuck(t, s)
	if len(s.Stuck) != 1 || len(s.Stuck[0].Sets) != 2 {
		t.Fatalf("stuck: %+v", s.Stuck)
	}
	return s, s.Stuck[0]
}

func TestBlocksOutsideOfTheSampleHoldSegmentsToo(t *testing.T) {
	_, x := stuckOf(t, play(t, stuckBooks))
	if x.Free != 8192-2560 || x.Idle != 4096 || x.Listed != 7e9 {
		t.Errorf("%+v", x)
	}
	for _, set := range x.Sets {
		stacks := map[uint64]uint64{}
		for _, b := range set.By {
			stacks[b.Stack] = b.Bytes
			if b.Sampled == (b.Stack == 0) || b.Holder != -1 || b.Blocks != 1 {
				t.Errorf("%+v", b)
			}
		}
		first := set.Free == 4096-1024-512
		if first && (stacks[2] != 1024 || stacks[0] != 512) || !first && (stacks[2] != 512 || stacks[3] != 512) || len(stacks) != 2 {
			t.Errorf("set %+v", set)
		}
	}
}

func TestAListOfBlocksFromBeforeIsCorrectedByWhatIsKnownSince(t *testing.T) {
	for name, test := range map[string]struct {
		script             string
		free, idle         uint64
		unlisted, outdated uint64
	}{
		"freed and not told":               {"told t=8 dev=0 space=blocks told=2048/12288/2048", 8192 - 2560, 4096, 0, 512},
		"allocated outside of the sample":  {"told t=8 dev=0 space=blocks told=3072/12288/3072", 8192 - 2560, 12288 - 3072 - (8192 - 2560), 512, 0},
		"its address is in the sample now": {"alloc t=8 addr=1800 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch\ntold t=8 dev=0 space=blocks told=2560/12288/2560", 8192 - 2560, 4096, 0, 0},
		"its segment was given back":       {"free t=8 addr=1000 space=blocks\nfree t=8 addr=1000\nalloc t=8 addr=1000 size=4096 stack=1 dev=0\nalloc t=8 addr=1000 size=1024 stack=4 dev=0 kind=tensor space=blocks api=torch\ntold t=8 dev=0 space=blocks told=2048/12288/2048", 8192 - 2048, 4096, 0, 512},
	} {
		_, x := stuckOf(t, play(t, stuckBooks+test.script))
		if x.Free != test.free || x.Idle != test.idle || x.Unlisted != test.unlisted || x.Outdated != test.outdated {
			t.Errorf("%s: %d stuck, %d idle, %d unlisted, %d outdated; want %+v", name, x.Free, x.Idle, x.Unlisted, x.Outdated, test)
		}
	}
}

func TestABlockThatWouldBeInTheSampleWasFreedWhileBlocksWereListed(t *testing.T) {
	for script, free := range map[string]uint64{
		strings.Replace(stuckBooks, "sampling 0.5", "", 1) + "told t=8 dev=0 space=blocks told=2048/12288/2048": 8192 - 2048,
		stuckBooks + "free t=8 addr=9400 space=blocks\ntold t=8 dev=0 space=blocks told=2048/12288/2048":        8192 - 2048,
	} {
		l := play(t, script)
		s := l.Snapshot(9e9, time.Time{})
		l.AddStuck(s)
		checkStuck(t, s)
		if x := s.Stuck[0]; x.Free != free || x.Idle != 4096 || x.Unlisted != 0 || x.Outdated != 0 {
			t.Errorf("%+v\n%s", x, script)
		}
	}
}

func TestMappingsGoBackOneByOne(t *testing.T) {
	l := play(t, `
sampling 0.5
alloc t=1 addr=1 size=4096 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=2 size=4096 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=3 size=4096 stack=1 dev=0 kind=vmm space=physical
map t=2 addr=10000 size=4096 handle=1
map t=2 addr=11000 size=4096 handle=2
map t=2 addr=12000 size=4096 handle=3
segments 1
totals t=3 dev=0 allocated=1024 reserved=12288 512:2/1024-0/0
blocks 10e00+1024`)
	s := l.Snapshot(9e9, time.Time{})
	l.AddStuck(s)
	checkStuck(t, s)
	if x := s.Stuck[0]; x.Segments != 2 || x.Free != 2*3584 || x.Idle != 4096 || len(x.Sets) != 1 || x.Sets[0].By[0].Blocks != 1 || x.Sets[0].By[0].Bytes != 1024 {
		t.Errorf("%+v", x)
	}
}

func TestHoldersOfStuckBlocksAreThoseOfTheWalk(t *testing.T) {
	for _, later := range []bool{false, true} {
		l := play(t, stuckBooks)
		walk := Walk{PID: 7, Time: 8e9, Holders: twoHolders, Storages: []Storage{
			{Address: 0x1800, Bytes: 500, Block: 512, Holder: 1},
			{Address: 0x9000, Bytes: 512, Block: 512},
			{Address: 0x9400, Bytes: 512, Block: 1024}, // another block had the address
			{Address: 0x700000, Bytes: 5 << 20},
		}}
		var s *Snapshot
		if later {
			s, _ = stuckOf(t, l)
			l.Tell(walk)
			l.AddWalk(s, 7)
		} else {
			l.Tell(walk)
			s, _ = stuckOf(t, l)
		}
		checkStuck(t, s)
		got := map[string]uint64{}
		for _, set := range s.Stuck[0].Sets {
			for _, b := range set.By {
				path := "?"
				if b.Holder >= 0 {
					path = s.LatestWalk(0).Held[b.Holder].Path
				}
				got[path] += b.Bytes
			}
		}
		if got["history[*]"] != 512 || got["model"] != 512 || got["?"] != 1536 {
			t.Errorf("later %v: %v", later, got)
		}
	}
}

func TestListsOfBlocksAreBounded(t *testing.T) {
	l := play(t, stuckBooks)
	list := make([]Block, maxListed+1)
	for i := range list {
		list[i] = Block{Address: 1<<40 + 512*uint64(i), Size: 512}
	}
	l.Tell(BlockList{PID: 7, Blocks: list})
	if p := l.byPID[7]; len(p.blockList.blocks) != 0 || l.listedBlocks != 0 {
		t.Errorf("%d blocks are kept, %d counted", len(p.blockList.blocks), l.listedBlocks)
	}
	list = list[:2*maxFreed]
	l.Tell(BlockList{PID: 7, Blocks: list})
	p := l.byPID[7]
	if len(p.blockList.blocks) != len(list) || l.listedBlocks != len(list) {
		t.Errorf("%d blocks are kept, %d counted", len(p.blockList.blocks), l.listedBlocks)
	}
	for i := range maxFreed + 1 {
		p.noteListedFreed(uint64(i))
	}
	if len(p.blockList.blocks) != 0 || len(p.blockList.freed) != 0 || l.listedBlocks != 0 {
		t.Errorf("%d blocks are kept, %d freed, %d counted", len(p.blockList.blocks), len(p.blockList.freed), l.listedBlocks)
	}
}

func BenchmarkStuckOf100000Blocks(b *testing.B) {
	l := New(Options{})
	l.Tell(Process{PID: 7, Begin: 1})
	for i := range uint64(100) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Address: 0x7f0000000000 + i<<21, Size: 2 << 20, Stack: 1, API: "cudaMalloc"})
	}
	list := tensorsOfAJob(l, 100_000)
	l.Tell(TensorReading{Time: 1e9, Totals: []TensorTotals{{PID: 7, Reported: 1e9, Allocated: 1 << 27, Reserved: 200 << 20}}})
	l.Tell(BlockList{PID: 7, Blocks: list})
	s := l.Snapshot(2e9, time.Time{})
	for b.Loop() {
		l.AddStuck(s)
	}
	if len(s.Stuck) != 1 || s.Stuck[0].Segments < 90 {
		b.Errorf("%+v", s.Stuck)
	}
}
