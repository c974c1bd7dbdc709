// SPDX-License-Identifier: Apache-2.0

package allocscan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// inMotion is a walk of a segment of 4 MiB, during which the block at 0x200000 was freed and the
// one at 0x300000 given out: it has the first and lacks the second. The one at 0x100000 is from
// before the attach.
func inMotion() (s *allocator.Snapshot, before, after []Table) {
	s = &allocator.Snapshot{
		Segments: []allocator.Segment{{Address: 0x100000, Size: 4 * mib, Stream: 7}},
		Devices:  []allocator.Device{{LockFree: true, Bounded: true, Given: 1, From: 20, To: 30, OffBlocks: 2, OffBytes: 2 * mib}},
	}
	for i, state := range []allocator.State{allocator.Active, allocator.Active, allocator.Inactive, allocator.PendingFree} {
		s.Blocks = append(s.Blocks, allocator.Block{Address: 0x100000 * uint64(1+i), Size: mib, Requested: mib - 8, State: state, Stream: 7})
	}
	s.Devices[0].Counters.Reserved.Current = 4 * mib
	table := func(time, given uint64, address uint64) []Table {
		return []Table{{Number: 3, Time: time, Allocated: 2 * mib, Live: mib, Reserved: 4 * mib, Given: given, Reports: given, Whole: true, Blocks: []ledger.Block{{Address: address, Size: mib}}}}
	}
	return s, table(15, 5, 0x200000), table(25, 7, 0x300000)
}

func states(s *allocator.Snapshot) (list []string) {
	for _, b := range s.Blocks {
		list = append(list, fmt.Sprintf("%#x %s", b.Address, b.State))
	}
	return list
}

func TestAWalkInMotionIsSettledByTheReportsOfItsWindow(t *testing.T) {
	s, before, after := inMotion()
	var k settler
	settled := k.settle(s, before, after)
	if settled == nil {
		t.Fatal("not settled")
	}
	if got, want := states(settled), []string{"0x100000 active_allocated", "0x200000 inactive", "0x300000 active_allocated", "0x400000 active_pending_free"}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	r := settledReading(settled, after, 25).bookable()
	if d := r.Devices[0]; d.Exact || !d.Settled || d.OffBytes != 0 || !r.Sure() {
		t.Errorf("device %+v", d)
	}
	for i, older := range []bool{true, false, false, false} {
		if r.Blocks[i].Older != older {
			t.Errorf("block %d: older %v", i, !older)
		}
	}
	if r.Blocks[0].Requested != mib-8 || r.Blocks[2].Requested != mib || r.Arenas[r.Blocks[2].Arena].Stream != 7 {
		t.Errorf("blocks %+v", r.Blocks)
	}
}

// TestAWalkInMotionIsNotSettledWithoutProof: each of these may be wrong.
func TestAWalkInMotionIsNotSettledWithoutProof(t *testing.T) {
	for name, spoil := range map[string]func(s *allocator.Snapshot, before, after []Table) ([]Table, []Table){
		"no table before": func(_ *allocator.Snapshot, _, after []Table) ([]Table, []Table) { return nil, after },
		"no table after":  func(_ *allocator.Snapshot, before, _ []Table) ([]Table, []Table) { return before, nil },
		"the table began anew": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Number++
			return before, after
		},
		"a report came while the table was read": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Whole = false
			return before, after
		},
		"blocks came without a report": func(s *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			s.Devices[0].Given = 9
			return before, after
		},
		"a segment came": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Reserved += mib
			return before, after
		},
		"the bounds of segments are unknown": func(s *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			s.Devices[0].Bounded = false
			return before, after
		},
		"the lock was held": func(s *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			s.Devices[0].LockFree = false
			return before, after
		},
		"an older block is missing": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Allocated += mib
			return before, after
		},
		"a block is in no segment": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Blocks[0].Address = 0x700000
			return before, after
		},
		"a block is beyond the end of its segment": func(_ *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			after[0].Blocks[0].Size = 3 * mib
			return before, after
		},
		"a device at rest moved afterwards": func(s *allocator.Snapshot, before, after []Table) ([]Table, []Table) {
			s.Devices[0].Exact, s.Devices[0].Bounded = true, false
			return before, after
		},
	} {
		s, before, after := inMotion()
		var k settler
		before, after = spoil(s, before, after)
		if settled := k.settle(s, before, after); settled != nil {
			t.Errorf("%s: settled as %v", name, states(settled))
		}
	}
}

// TestABlockThatCameAndWentIsNotOlder: it is in no table, but not in each walk either.
func TestABlockThatCameAndWentIsNotOlder(t *testing.T) {
	s, before, after := inMotion()
	s.Blocks[2].State = allocator.Active // came and went at 0x300000
	after[0].Blocks[0].Address = 0x400000
	s.Blocks[3].State = allocator.Inactive
	var k settler
	if k.settle(s, before, after) != nil {
		t.Error("settled although a block more than the allocator's total may be older")
	}
	s.Blocks[2].State = allocator.Inactive
	if k.settle(s, after, after) != nil {
		t.Error("settled with blocks that no report gave out")
	}
	s.Devices[0].Given = 0
	if settled := k.settle(s, after, after); settled == nil || settled.Blocks[0].State != allocator.Active {
		t.Errorf("the next walk is not settled")
	}
}

// TestHostileWalksAreComposed: whatever a process has, composing ends and its blocks do not
// overlap.
func TestHostileWalksAreComposed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	odd := func() uint64 {
		if rng.IntN(4) == 0 {
			return ^uint64(0) - rng.Uint64N(3*mib)
		}
		return rng.Uint64N(16) * 0x80000
	}
	done := 0
	for range 20_000 {
		s, before, after := inMotion()
		for range 1 + rng.IntN(3) {
			switch rng.IntN(5) {
			case 0:
				s.Segments[0].Address, s.Segments[0].Size = odd(), odd()
			case 1:
				s.Segments = append(s.Segments, allocator.Segment{Address: odd(), Size: odd()})
			case 2:
				s.Blocks[rng.IntN(4)] = allocator.Block{Address: odd(), Size: odd(), State: allocator.State(rng.IntN(4))}
			case 3:
				after[0].Blocks[0] = ledger.Block{Address: odd(), Size: odd()}
			case 4:
				after[0].Allocated = odd()
			}
		}
		var k settler
		if x := k.settle(s, before, after); x != nil {
			done++
			for i := 1; i < len(x.Blocks); i++ {
				if x.Blocks[i].Address < x.Blocks[i-1].Address+x.Blocks[i-1].Size {
					t.Fatalf("blocks overlap: %v", states(x))
				}
			}
		}
	}
	if done < 1000 {
		t.Errorf("only %d were settled", done)
	}
}
