// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"
)

const mib = 1 << 20

// trained has a process whose allocator has 100 MiB from before the attach, all of it optimizer
// state that stays.
func trained(reports bool) *Ledger {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Tell(UsageReading{Time: 5, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 700 * mib}}})
	if reports {
		firstReport100(l, 10)
	}
	return l
}

func firstReport100(l *Ledger, time uint64) {
	l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: time, Size: 100 * mib, Handle: 400 * mib})
}

// stepTensor allocates and frees a tensor of 10 MiB at a place of the running step.
func stepTensor(l *Ledger, time, place uint64, frees bool) {
	e := Event{
		Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: time, Address: stepAddress(place), Size: 10 * mib, Stack: 1, API: "torch",
		Told: ToldAllocated | ToldLive, Allocated: 110 * mib, Reserved: 400 * mib, Live: 10 * mib,
	}
	l.Apply(&e)
	if frees {
		e.Op, e.Time, e.Size, e.Allocated, e.Live = Free, time+1, 0, 100*mib, 0
		l.Apply(&e)
	}
}

func stepAddress(place uint64) uint64 { return 0x7000_0000_0000 + place*10*mib }

var trainedHolders = []Holder{held("opt.state[*]['exp_avg']", true), held("local \"x\" of forward()", true)}

// walkOfStep finds the optimizer's state, and tensors of the running step at some places, whose
// blocks are unknown: they came and went while the walk read. Some are in motion.
func walkOfStep(time uint64, places uint64, inMotion bool) Walk {
	w := Walk{PID: 7, Time: time, Took: 5, Holders: trainedHolders}
	for i := range uint64(10) {
		w.Storages = append(w.Storages, Storage{Address: 0x6000_0000_0000 + i*10*mib, Bytes: 10 * mib})
	}
	for i := range places {
		w.Storages = append(w.Storages, Storage{Address: stepAddress(i), Bytes: 10 * mib, Holder: 1, InMotion: inMotion})
	}
	return w
}

// leftOf returns what a holder has of memory from before the attach at a snapshot's moment.
func leftOf(t *testing.T, s *Snapshot, path string) (left uint64) {
	t.Helper()
	w := s.LatestWalk(0)
	if w == nil || len(w.Left) != len(w.Held) {
		t.Fatalf("walks %+v", s.Walks)
	}
	checkWalk(t, w)
	var sum uint64
	for i, n := range w.Left {
		sum += n
		if w.Held[i].Path == path {
			left += n
		}
	}
	if live := s.TensorsOn(0, 0); live != nil && sum > live.Older {
		t.Errorf("holders have %d bytes from before the attach, there are %d", sum, live.Older)
	}
	return left
}

const expAvg = "opt.state[*]['exp_avg']"

func checkLeft(t *testing.T, s *Snapshot, want uint64) {
	t.Helper()
	if got := leftOf(t, s, expAvg); got != want {
		t.Errorf("at %d: exp_avg has %d MiB from before the attach, want %d", s.End, got/mib, want/mib)
	}
}

// TestWhatChangesWhileAWalkReadsMakesRoomForWhatStays: the step's tensors that a walk saw come to
// three times what the allocator has.
func TestWhatChangesWhileAWalkReadsMakesRoomForWhatStays(t *testing.T) {
	l := trained(true)
	l.Tell(WalkOpened{PID: 7, Time: 30})
	l.Tell(walkOfStep(30, 20, true))
	checkLeft(t, l.Snapshot(40, time.Time{}), 100*mib)
}

// TestAnAddressThatWasGivenOutSinceTheAttachIsNotOlder: events gave it out while the walk read, or
// between two walks, or it lies in a segment that came since.
func TestAnAddressThatWasGivenOutSinceTheAttachIsNotOlder(t *testing.T) {
	during := trained(true)
	during.Tell(WalkOpened{PID: 7, Time: 30})
	for i := range uint64(20) {
		stepTensor(during, 31+2*i, i, true)
	}
	during.Tell(walkOfStep(30, 20, false))
	checkLeft(t, during.Snapshot(90, time.Time{}), 100*mib)

	between := trained(true)
	between.Tell(walkOfStep(30, 20, false))
	for i := range uint64(20) {
		stepTensor(between, 31+2*i, i, true)
	}
	checkLeft(t, between.Snapshot(80, time.Time{}), 100*mib)
	between.Tell(walkOfStep(90, 20, false))
	checkLeft(t, between.Snapshot(95, time.Time{}), 100*mib)

	listed := trained(true)
	listed.Tell(walkOfStep(30, 20, false))
	list := BlockList{PID: 7}
	for i := range uint64(20) {
		list.Blocks = append(list.Blocks, Block{Address: stepAddress(i), Size: 10 * mib})
	}
	listed.Tell(list)
	checkLeft(t, listed.Snapshot(80, time.Time{}), 100*mib)

	segment := trained(true)
	segment.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Device: 0, Time: 20, Address: stepAddress(0), Size: 200 * mib, Stack: 9, API: "cudaMalloc"})
	segment.MarkSegments(func(stack uint64) bool { return stack == 9 })
	segment.Tell(walkOfStep(30, 20, false))
	checkLeft(t, segment.Snapshot(80, time.Time{}), 100*mib)
}

// TestWhatTwoWalksFindAtTheSameAddressIsOlder, also if its holder changes all the time.
func TestWhatTwoWalksFindAtTheSameAddressIsOlder(t *testing.T) {
	l := trained(true)
	first := walkOfStep(30, 0, true)
	for i := range first.Storages {
		first.Storages[i].InMotion = true
	}
	l.Tell(first)
	second := walkOfStep(50, 20, false)
	for i := range 10 {
		second.Storages[i].InMotion = true
	}
	l.Tell(second)
	checkLeft(t, l.Snapshot(60, time.Time{}), 100*mib)
}

// TestOlderMemoryThatWasFreedLeavesItsHolder, not all others in proportion: its address was given
// out again.
func TestOlderMemoryThatWasFreedLeavesItsHolder(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 10, Size: 150 * mib, Handle: 400 * mib})
	l.Tell(walkOfStep(30, 5, false)) // within a slow step, whose tensors are older than the attach too
	checkLeft(t, l.Snapshot(40, time.Time{}), 100*mib)
	for i := range uint64(5) {
		stepTensor(l, 50+2*i, i, true)
	}
	s := l.Snapshot(90, time.Time{})
	checkLeft(t, s, 100*mib)
	if n := leftOf(t, s, trainedHolders[1].Path); n != 0 {
		t.Errorf("the step that has ended has %d MiB", n/mib)
	}
}

// TestOlderMemoryThatWasFreedUnseen comes off what has no holder first, and then off all in
// proportion.
func TestOlderMemoryThatWasFreedUnseen(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Comm: "python3", Begin: 1})
	l.Apply(&Event{Op: Allocator, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 10, Size: 300 * mib, Handle: 400 * mib})
	l.Tell(walkOfStep(30, 10, false))
	for i, want := range []uint64{100, 100, 60} {
		total := []uint64{300, 200, 120}[i] * mib
		l.Apply(&Event{Op: Totals, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 40 + uint64(i), Told: ToldAllocated | ToldLive, Allocated: total, Reserved: 400 * mib})
		checkLeft(t, l.Snapshot(60, time.Time{}), want*mib)
	}
}

// TestTheFirstWalkDividesBeforeTheAllocatorHasReported: at the moments before its first report, and
// after it, whether the report comes before or after the end of the walk.
func TestTheFirstWalkDividesBeforeTheAllocatorHasReported(t *testing.T) {
	for _, when := range []string{"later", "while it reads", "never"} {
		l := trained(false)
		l.Tell(WalkOpened{PID: 7, Time: 30})
		if when == "while it reads" {
			firstReport100(l, 31)
		}
		l.Tell(walkOfStep(30, 0, false))
		if when != "while it reads" {
			s := l.Snapshot(40, time.Time{})
			checkLeft(t, s, 100*mib)
			if w := s.LatestWalk(0); len(w.Unheld()) != 0 || w.Allocators[0].Allocated != 100*mib || !w.Allocators[0].Unreported {
				t.Errorf("%s: totals %+v", when, w.Allocators)
			}
		}
		if when == "later" {
			firstReport100(l, 50)
		}
		s := l.Snapshot(60, time.Time{})
		checkLeft(t, s, 100*mib)
		if w := s.LatestWalk(0); w.Allocators[0].Older != 100*mib || w.Allocators[0].Unreported != (when == "never") {
			t.Errorf("%s: totals %+v", when, w.Allocators)
		}
	}
}

// TestTensorsThatOnlyAWalkKnowsAreInThePlanes, never more than NVML said, and AddWalk has them be
// in those of a moment before it.
func TestTensorsThatOnlyAWalkKnowsAreInThePlanes(t *testing.T) {
	l := trained(false)
	early := l.Snapshot(20, time.Time{})
	l.Tell(walkOfStep(30, 0, false))
	l.AddWalk(early, 7)
	l.AddWalk(early, 7)
	for _, s := range []*Snapshot{early, l.Snapshot(40, time.Time{}), l.Levels(40, time.Time{})} {
		if x := s.Parts()[0]; x.OlderAllocated != 100*mib || x.Foreign != 600*mib || x.Unexplained != 0 {
			t.Errorf("parts at %d: %+v", s.End, x)
		}
	}
	checkLeft(t, early, 100*mib)

	walk := walkOfStep(50, 0, false)
	for i := range uint64(100) {
		walk.Storages = append(walk.Storages, Storage{Address: 0x100_0000_0000 + i*100*mib, Bytes: 100 * mib})
	}
	l.Tell(walk)
	if x := l.Snapshot(60, time.Time{}).Parts()[0]; x.OlderAllocated != 700*mib || x.Foreign != 0 || x.Unexplained != 0 {
		t.Errorf("with more than NVML's figure: parts %+v", x)
	}

	firstReport100(l, 70) // which knows better
	if x := l.Snapshot(80, time.Time{}).Parts()[0]; x.OlderAllocated != 100*mib || x.OlderCached != 300*mib || x.Foreign != 300*mib {
		t.Errorf("after the allocator's report: parts %+v", x)
	}
}

// TestACheckpointHasWhatAWalkTookForOlder, and a walk under way.
func TestACheckpointHasWhatAWalkTookForOlder(t *testing.T) {
	for _, reports := range []bool{true, false} {
		l := trained(reports)
		l.Tell(walkOfStep(30, 5, false))
		stepTensor(l, 40, 1, true)
		l.Tell(WalkOpened{PID: 7, Time: 50})
		stepTensor(l, 51, 2, true)
		n, o := New(Options{}), New(Options{})
		l.Checkpoint(n, math.MaxInt)
		l.Opening(o)
		for _, to := range []*Ledger{l, n, o} {
			stepTensor(to, 60, 3, true)
			to.Tell(walkOfStep(50, 5, false))
			stepTensor(to, 70, 4, true)
		}
		for _, to := range []*Ledger{n, o} {
			if d := differs(booksOf(l, 80), booksOf(to, 80)); d != "" {
				t.Errorf("%s", d)
			}
			checkLedger(t, to)
		}
	}
}

// TestAWalkOfAProcessThatGivesUpItsMemoryReplacesNone: one that ends with an uncaught error frees
// its tensors, or ends, while it is read. What the walk before found is worth more, as long as this
// one found little.
func TestAWalkOfAProcessThatGivesUpItsMemoryReplacesNone(t *testing.T) {
	frees := func(l *Ledger) {
		l.Apply(&Event{Op: Totals, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 51, Told: ToldAllocated | ToldLive, Reserved: 400 * mib})
	}
	ends := func(l *Ledger) { l.Apply(&Event{Op: Exit, PID: 7, Time: 51}) }
	for i, gives := range []func(*Ledger){frees, ends} {
		for _, before := range []bool{true, false} {
			for _, found := range []int{1, 9} {
				l := trained(true)
				if before {
					l.Tell(walkOfStep(30, 0, false))
				}
				l.Tell(WalkOpened{PID: 7, Time: 50})
				gives(l)
				walk := walkOfStep(50, 0, false)
				walk.Storages = walk.Storages[:found]
				if found == 1 {
					walk.Storages[0].Bytes = mib
				}
				l.Tell(walk)
				w := l.Snapshot(60, time.Time{}).LatestWalk(0)
				switch {
				case found == 9 && (w.Time != 50 || w.Failure != ""):
					t.Errorf("way %d: a walk that found most is left out: %+v", i, w)
				case found == 1 && before && (w.Time != 30 || w.Held[0].Bytes != 100*mib):
					t.Errorf("way %d: the walk before is replaced by %+v", i, w)
				case found == 1 && !before && w.Failure != WalkFreed:
					t.Errorf("way %d: a walk that found 1 %% counts as one that succeeded: %+v", i, w)
				}
			}
		}
	}
}

// TestAWalkThatReadsWhatWasFreedBeforeItBeganReplacesNone: on a busy machine, a process that ends
// with an uncaught error has freed its tensors before the walk for its record begins, and its
// objects are still in its memory.
func TestAWalkThatReadsWhatWasFreedBeforeItBeganReplacesNone(t *testing.T) {
	l := trained(true)
	l.Tell(walkOfStep(30, 0, false))
	l.Apply(&Event{Op: Totals, Kind: Tensor, Space: Blocks, PID: 7, Device: 0, Time: 49, Told: ToldAllocated | ToldLive, Reserved: 400 * mib})
	l.Tell(WalkOpened{PID: 7, Time: 50})
	l.Tell(walkOfStep(50, 0, false))
	if w := l.Snapshot(60, time.Time{}).LatestWalk(0); w.Time != 30 || w.Held[0].Bytes != 100*mib {
		t.Errorf("the walk before is replaced by %+v", w)
	}
	l.Tell(WalkOpened{PID: 7, Time: 70})
	l.Tell(Walk{PID: 7, Time: 70, Holders: trainedHolders}) // nor are the objects there
	if w := l.Snapshot(80, time.Time{}).LatestWalk(0); w.Time != 70 {
		t.Errorf("the walk that finds nothing freed is left out: %+v", w)
	}
}

// BenchmarkTensorsAfterAWalk allocates and frees a tensor in a process of which a walk found so
// many storages from before the attach; 0: no walk.
func BenchmarkTensorsAfterAWalk(b *testing.B) {
	for _, storages := range []uint64{0, 1_000, 100_000} {
		b.Run(fmt.Sprint(storages), func(b *testing.B) {
			l := trained(true)
			walk := Walk{PID: 7, Time: 30, Holders: trainedHolders}
			for i := range storages {
				walk.Storages = append(walk.Storages, Storage{Address: stepAddress(0) + (2*i+1)*512, Bytes: 512})
			}
			if storages > 0 {
				l.Tell(walk)
			}
			b.ReportAllocs()
			for i := range uint64(b.N) {
				stepTensor(l, 100+2*i, i%64, true)
			}
		})
	}
}
