// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// walkedBooks has a process whose allocator has 10 MiB from before the attach and two sampled
// blocks of 1 MiB since, at stacks 1 and 2.
func walkedBooks(t *testing.T) *Ledger {
	t.Helper()
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 10, Size: 10 << 20, Handle: 20 << 20})
	for i := range uint64(2) {
		l.Apply(&Event{
			Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 20 + i, Address: 0x100000 * (1 + i), Size: 1 << 20, Stack: 1 + i, API: "torch",
			Told: ToldAllocated | ToldLive, Allocated: (11 + i) << 20, Reserved: 20 << 20, Live: (1 + i) << 20,
		})
	}
	return l
}

func held(path string, found bool) Holder {
	return Holder{Path: path, Retention: retention.Known | retention.Cache, Frames: []string{path}, Found: found}
}

var twoHolders = []Holder{held("model", true), held("history[*]", true)}

// walkOfTwo finds older memory of 4 MiB and the block of stack 1 at "model", and the block of stack
// 2 at "history".
func walkOfTwo(time uint64) Walk {
	return Walk{PID: 7, Time: time, Holders: twoHolders, Storages: []Storage{
		{Address: 0x100000, Bytes: 1<<20 - 4, Block: 1 << 20},
		{Address: 0x200000, Bytes: 1 << 20, Block: 1 << 20, Holder: 1},
		{Address: 0x900000, Bytes: 4<<20 - 100},
	}}
}

func checkWalk(t *testing.T, w *Walked) {
	t.Helper()
	for _, a := range w.Allocators {
		var sum, older uint64
		for _, h := range w.Held {
			if h.Device == a.Device {
				sum, older = sum+h.Bytes-h.Driver, older+h.Older
			}
		}
		if sum != a.Held || older != a.HeldOlder || a.Held > a.Allocated || a.HeldOlder > a.Older || a.Older > a.Allocated {
			t.Errorf("holders have %d bytes, %d older; the totals are %+v", sum, older, a)
		}
	}
}

func TestHoldersAndWhatIsNotFoundAddUpToTheAllocatorsTotal(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(WalkOpened{PID: 7, Time: 30})
	l.Tell(walkOfTwo(30))
	s := l.Snapshot(40, time.Time{})
	w := s.LatestWalk(0)
	if w == nil || len(w.Held) != 2 || len(w.Allocators) != 1 {
		t.Fatalf("walks %+v", s.Walks)
	}
	checkWalk(t, w)
	if a := w.Allocators[0]; a.Allocated != 12<<20 || a.Older != 10<<20 || a.HeldOlder != 4<<20 || a.Held != 6<<20 || a.Excess != 0 {
		t.Errorf("totals %+v", a)
	}
	if h := w.Held[0]; h.Path != "model" || h.Bytes != 5<<20 || h.Older != 4<<20 || h.Storages != 2 {
		t.Errorf("largest holder %+v", h)
	}
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Kind == Tensor && (len(x.Holders) != 1 || w.Held[x.Holders[0].Holder].Path != twoHolders[x.Stack-1].Path || x.Holders[0].Bytes != x.LiveBytes) {
			t.Errorf("site of stack %d has %d bytes, holders %+v", x.Stack, x.LiveBytes, x.Holders)
		}
	}
}

func TestAWalkIsAsOfItsBeginAlsoWhenTheProcessFreesMeanwhile(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(WalkOpened{PID: 7, Time: 30})
	for i := range uint64(2) {
		l.Apply(&Event{
			Op: Free, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 31 + i, Address: 0x100000 * (1 + i), Size: 1 << 20,
			Told: ToldAllocated | ToldLive, Allocated: (1 - i) << 20, Reserved: 20 << 20, Live: (1 - i) << 20,
		})
	}
	l.Tell(walkOfTwo(30))
	s := l.Snapshot(40, time.Time{})
	w := s.LatestWalk(0)
	checkWalk(t, w)
	if a := w.Allocators[0]; a.Allocated != 12<<20 || a.Held != 6<<20 {
		t.Errorf("totals %+v, want those of the walk's begin", a)
	}
	for i := range s.Sites {
		if len(s.Sites[i].Holders) != 0 {
			t.Errorf("a site without live memory has holders: %+v", s.Sites[i])
		}
	}
}

func TestStoragesNeverExceedTheAllocator(t *testing.T) {
	l := walkedBooks(t)
	walk := walkOfTwo(30)
	for i := range uint64(9) {
		walk.Storages = append(walk.Storages,
			Storage{Address: 0x10000000 * i, Bytes: 5 << 20, Holder: uint32(i % 2)}, Storage{Address: 0x11000000 * i, Bytes: 1, Block: maxSize})
	}
	walk.Storages = append(walk.Storages, Storage{Address: 1, Bytes: 1, Holder: 9}, Storage{Address: 1, Bytes: 1 << 63}, walk.Storages[0], walk.Storages[0])
	l.Tell(walk)
	w := l.Snapshot(40, time.Time{}).LatestWalk(0)
	checkWalk(t, w)
	if a := w.Allocators[0]; a.Held != a.Allocated || a.Excess == 0 || a.ExcessOlder == 0 {
		t.Errorf("totals %+v", a)
	}
}

func TestTheFirstAndTheLatestWalkAreKept(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(Walk{PID: 7, Time: 25, Failure: "cannot read this Python"})
	for i := range uint64(100) {
		l.Tell(walkOfTwo(30 + i))
		l.Tell(Walk{PID: 7, Time: 30 + i, Failure: "too late"})
	}
	l.Tell(Walk{PID: 8, Time: 30}) // not known
	s := l.Snapshot(140, time.Time{})
	if first, last := s.FirstWalk(0), s.LatestWalk(0); len(s.Walks) != maxWalks || first.Time != 30 || last.Time != 129 {
		t.Errorf("%d walks, from %d to %d", len(s.Walks), first.Time, last.Time)
	}
	if l.byPID[7].walks.open != nil {
		t.Error("a walk is open")
	}
}

func TestManyHoldersTakeTheirShareOnly(t *testing.T) {
	l := walkedBooks(t)
	walk := Walk{PID: 7, Time: 30}
	for i := range uint32(40_000) {
		walk.Holders = append(walk.Holders, held(fmt.Sprint("h", i), true))
		walk.Storages = append(walk.Storages, Storage{Address: uint64(i+1) << 24, Bytes: 512, Holder: i})
	}
	for i := range uint64(3) {
		walk.Time = 30 + i
		l.Tell(walk)
	}
	s := l.Snapshot(40, time.Time{})
	sum := 0
	for i := range s.Walks {
		checkWalk(t, &s.Walks[i])
		sum += len(s.Walks[i].Held)
	}
	if most := l.quotas[tableHeld].OfProcess(); sum > most || len(s.Processes[0].Beyond) == 0 {
		t.Errorf("%d holders, at most %d; beyond %v", sum, most, s.Processes[0].Beyond)
	}
}

func TestAWalkThatIsStillUnderWayIsAddedAsOneNotInTime(t *testing.T) {
	l := walkedBooks(t)
	l.Tell(Walk{PID: 7, Time: 25, Failure: "no PyTorch tensor in the process"})
	l.Tell(WalkOpened{PID: 7, Time: 30})
	s := l.Snapshot(40, time.Time{})
	l.AddWalk(s, 7)
	if w := s.LatestWalk(0); w == nil || w.Failure != WalkUnended || w.Time != 30 || len(s.Walks) != 1 {
		t.Errorf("while it is under way: %+v", s.Walks)
	}
	l.Tell(walkOfTwo(30))
	l.AddWalk(s, 7)
	if w := s.LatestWalk(0); w == nil || w.Failure != "" || len(w.Held) == 0 || len(s.Walks) != 1 {
		t.Errorf("after its end: %+v", s.Walks)
	}
	l.Tell(WalkOpened{PID: 7, Time: 50})
	s = l.Snapshot(60, time.Time{})
	l.AddWalk(s, 7)
	if w := s.LatestWalk(0); w == nil || w.Time != 30 {
		t.Errorf("what an earlier walk found is worth more: %+v", s.Walks)
	}
}

// TestWhatBothWalksFindLasts: only what the walks next before and after a moment found alike, and
// at rest, lasted. A walk that failed is no walk.
func TestWhatBothWalksFindLasts(t *testing.T) {
	for name, change := range map[string]func(before, after *Walk){
		"model and history": func(_, _ *Walk) {},
		"model":             func(_, after *Walk) { after.Storages = slices.Delete(after.Storages, 1, 2) },
		"history":           func(_, after *Walk) { after.Storages[0].InMotion = true },
		"history, again":    func(before, _ *Walk) { before.Storages[0].InMotion = true },
		"history, as well": func(_, after *Walk) {
			after.Holders = []Holder{held("model", true), held("history[*]", true)}
			after.Holders[0].Parts[modelpart.Weight] = 1 << 20
		},
		"nothing":        func(before, _ *Walk) { *before = Walk{PID: 7, Time: before.Time, Failure: "no"} },
		"nothing, again": func(_, after *Walk) { *after = Walk{PID: 7, Time: after.Time, Failure: "no"} },
	} {
		l := walkedBooks(t)
		before, after := walkOfTwo(30), walkOfTwo(60)
		change(&before, &after)
		l.Tell(before)
		s := l.Snapshot(40, time.Time{})
		l.Tell(after)
		l.AddWalk(s, 7)
		NoteLasting(l, s, 7)
		var got []string
		for _, h := range s.LatestWalk(0).Held {
			if h.Lasted {
				got = append(got, h.Path)
			}
		}
		var want []string
		for _, path := range []string{"model", "history[*]"} {
			if word, _, _ := strings.Cut(path, "["); strings.Contains(name, word) {
				want = append(want, path)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q lasted", name, got)
		}
	}
	l := walkedBooks(t)
	l.Tell(walkOfTwo(30))
	s := l.Snapshot(40, time.Time{})
	NoteLasting(l, s, 7)  // no walk after it
	NoteLasting(l, s, 99) // no process
	for _, h := range s.LatestWalk(0).Held {
		if h.Lasted {
			t.Errorf("%s lasted, by one walk", h.Path)
		}
	}
}
