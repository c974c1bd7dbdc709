// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

type toldWalks []ledger.Walk

func (b *toldWalks) Apply(*ledger.Event) {}
func (b *toldWalks) Tell(in ledger.Input) {
	if walk, ok := in.(ledger.Walk); ok {
		*b = append(*b, walk)
	}
}

func largeWalk() ledger.Walk {
	walk := ledger.Walk{PID: 7, Time: 8, Took: 9, Problems: []string{"a problem"}}
	for i := range 2*holdersPart + 1 {
		walk.Holders = append(walk.Holders, ledger.Holder{Device: -1, Path: fmt.Sprint("h", i), Frames: []string{"__main__"}, Class: "C", Also: []string{"x"}, Container: "list", Containers: 2, Entries: -1, Found: true, Retention: retention.Known | retention.Graph, Parts: modelpart.Bytes{modelpart.Saved: uint64(i)}})
	}
	for i := range uint64(2*storagesPart + 1) {
		walk.Storages = append(walk.Storages, ledger.Storage{Address: 1<<63 - i<<40, Bytes: i, Block: i % 3, Holder: uint32(i % 5), InMotion: i%2 == 0, Allocation: i%3 == 0})
	}
	return walk
}

func TestWalksOfManyPartsComeBackWhole(t *testing.T) {
	walk := largeWalk()
	parts := walkInputs(&walk)
	var a applier
	var got toldWalks
	for _, part := range parts {
		if n := size(part); n > batchBytes {
			t.Errorf("a part takes %d bytes", n)
		}
		if err := a.apply(part, &got); err != nil {
			t.Fatal(err)
		}
	}
	if len(parts) < 4 || len(got) != 1 || !reflect.DeepEqual(got[0], walk) {
		t.Errorf("%d parts, %d walks", len(parts), len(got))
	}
}

func TestAWalkWithAMissingPartIsDropped(t *testing.T) {
	walk := largeWalk()
	for missing := range walkInputs(&walk) {
		var a applier
		var got toldWalks
		for i, part := range walkInputs(&walk) {
			if i == missing {
				continue
			}
			if err := a.apply(part, &got); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 0 {
			t.Errorf("without part %d there is a walk", missing)
		}
	}
	var a applier
	if err := a.apply(&wire.Input{What: &wire.Input_Walk{Walk: &wire.Walk{Address: []int64{1}}}}, &toldWalks{}); err == nil {
		t.Error("columns of different lengths are read")
	}
}

func TestASnapshotHasTheNearestWalk(t *testing.T) {
	const second = uint64(1e9)
	c := &clock{now: second}
	var file memory
	w, err := NewWriter(&file, Options{Host: "host", Clock: c.read})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(fakeStacks{&atomic.Bool{}})
	w.Tell(ledger.Begin{Time: second})
	w.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: second})
	for at := 2 * second; at <= 61*second; at += second {
		c.set(at)
		w.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Address: at << 9, Size: 512, Time: at, Stack: 1, API: "torch"})
		if at == 3*second || at == 61*second {
			w.Tell(ledger.Walk{PID: 7, Time: at + at/(61*second), Holders: []ledger.Holder{{Path: "kept", Found: true, Retention: retention.Known}}, Storages: []ledger.Storage{
				{Address: (at - second) << 9, Bytes: 512, Block: 512},
			}})
		}
	}
	if err := w.End(&ledger.Snapshot{End: 61 * second}); err != nil {
		t.Fatal(err)
	}
	r := file.read(t)
	for at, want := range map[uint64]uint64{2: 3, 10: 3, 31: 3, 33: 61, 59: 61, 61: 61} {
		s, err := r.Snapshot(at * second)
		if err != nil {
			t.Fatal(err)
		}
		last := s.LatestWalk(0)
		switch {
		case last == nil || last.Time/second != want:
			t.Errorf("at %ds the walk is %+v, want that of %ds", at, last, want)
		case s.End != at*second || s.Sites[0].LiveObjects != at-1:
			t.Errorf("at %ds there are %d blocks, as of %d", at, s.Sites[0].LiveObjects, s.End)
		case len(s.Sites[0].Holders) != 1:
			t.Errorf("at %ds the site has holders %+v", at, s.Sites[0].Holders)
		}
	}
}

// TestANextWalkIsLookedForUpToAMinuteLater: a moment without a walk before it has the next one,
// which also shows what lasted, if it begins within 60 s.
func TestANextWalkIsLookedForUpToAMinuteLater(t *testing.T) {
	const second = uint64(1e9)
	c := &clock{now: second}
	var file memory
	w, err := NewWriter(&file, Options{Host: "host", Clock: c.read})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(fakeStacks{&atomic.Bool{}})
	w.Tell(ledger.Begin{Time: second})
	w.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: second})
	walked := []uint64{10, 90, 170, 400}
	for at := 2 * second; at <= 500*second; at += second {
		c.set(at)
		w.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Address: at << 9, Size: 512, Time: at, Stack: 1, API: "torch"})
		if slices.Contains(walked, at/second) {
			w.Tell(ledger.Walk{PID: 7, Time: at, Holders: []ledger.Holder{{Path: "kept", Found: true, Retention: retention.Known}}, Storages: []ledger.Storage{
				{Address: 2 * second << 9, Bytes: 512, Block: 512},
			}})
		}
	}
	if err := w.End(&ledger.Snapshot{End: 500 * second}); err != nil {
		t.Fatal(err)
	}
	r := file.read(t)
	for at, want := range map[uint64]struct {
		walk   uint64
		lasted bool
	}{5: {10, false}, 31: {10, true}, 29: {10, false}, 80: {90, true}, 340: {400, true}, 339: {170, false}, 399: {400, true}, 450: {400, false}} {
		s, err := r.Snapshot(at * second)
		if err != nil {
			t.Fatal(err)
		}
		last := s.LatestWalk(0)
		if last == nil || last.Time/second != want.walk || len(last.Held) != 1 || last.Held[0].Lasted != want.lasted {
			t.Errorf("at %ds the walk is %+v, want that of %ds, lasted %v", at, last, want.walk, want.lasted)
		}
	}
}

// TestHoldersOfOlderCapturesSayHowTheyKeepMemory: they have a path and no set.
func TestHoldersOfOlderCapturesSayHowTheyKeepMemory(t *testing.T) {
	if got := holderOf(&wire.Holder{Path: []byte("losses[*] (autograd graph)")}).Retention; got != retention.Known|retention.Graph {
		t.Errorf("%b", got)
	}
}
