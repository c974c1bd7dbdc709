// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestHoldersAddUpToTheAllocator(t *testing.T) {
	s := reporttest.Held()
	k := KeptBy(s)[0]
	var sum, older uint64
	for _, l := range k.Lines {
		sum += l.Bytes - l.Driver
		older += l.Older
	}
	if a := s.LatestWalk(0).Allocators[0]; sum != a.Allocated || older != a.Older || older != 58*reporttest.GiB {
		t.Errorf("the lines have %d bytes, %d of them older; the allocator %+v", sum, older, a)
	}
	if last := k.Lines[len(k.Lines)-1]; last.Path != NoHolder || last.Bytes != 512*reporttest.MiB || k.At != 58*reporttest.Second {
		t.Errorf("at %d the last line is %+v", k.At, last)
	}
	g := k.Grown[0]
	if len(k.Grown) != 2 || !strings.Contains(g.Path, "history[*]") || g.By.Storages != 560 || g.By.Entries != 560 || g.By.Bytes != int64(560*8*reporttest.MiB) {
		t.Errorf("grown are %+v", k.Grown)
	}
	if want := "256 MiB from before the attach were freed"; !slices.ContainsFunc(k.Problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
		t.Errorf("problems are %q", k.Problems)
	}
}

// TestOlderMemoryIsDividedByHolder: 256 MiB of it were freed since the walk.
func TestOlderMemoryIsDividedByHolder(t *testing.T) {
	s := reporttest.Held()
	kept := KeptBy(s)
	for _, h := range Holdings(s) {
		list := kept[h.Process].Divide(s, &h)
		if list == nil {
			if h.Plane == PlaneTensor || h.Mark == MarkOlder {
				t.Errorf("%+v is not divided", h)
			}
			continue
		}
		var sum uint64
		for _, x := range list {
			sum += x.Bytes
			if x.Line != nil && h.Mark == MarkOlder && x.Bytes > x.Line.Older {
				t.Errorf("%s has %d of its %d bytes from before the attach", x.Name(), x.Bytes, x.Line.Older)
			}
		}
		if sum != uint64(h.Live) {
			t.Errorf("parts of %+v add up to %d", h, sum)
		}
		if h.Mark == MarkOlder && (len(list) != 6 || list[5].Line != nil) {
			t.Errorf("older memory is divided into %d parts: %+v", len(list), list)
		}
	}
}

// TestARunningStepTakesNothingFromWhatIsOlder: a walk saw 200 MiB of a step that came and went
// while it read, beside 100 MiB of optimizer state, which is all that the allocator has from before
// the attach. The allocator reports before the walk, after it, or never: then what the walk found
// is shown.
func TestARunningStepTakesNothingFromWhatIsOlder(t *testing.T) {
	const state = "opt.state[*]['exp_avg']"
	for _, reports := range []uint64{20, 40, 0} {
		l := ledger.New(ledger.Options{Begin: 1})
		l.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: 1})
		l.Tell(ledger.UsageReading{Time: 5, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: 900 * reporttest.MiB}}})
		walk := ledger.Walk{PID: 7, Time: 30, Holders: []ledger.Holder{{Path: state, Found: true}, {Path: "in use by the running step"}}}
		for i := range uint64(30) {
			x := ledger.Storage{Address: 0x7000_0000_0000 + i*10*reporttest.MiB, Bytes: 10 * reporttest.MiB}
			if i >= 10 {
				x.Holder, x.InMotion = 1, true
			}
			if i < 10 || reports != 0 { // otherwise nothing runs
				walk.Storages = append(walk.Storages, x)
			}
		}
		report := func() {
			l.Apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Time: reports, Size: 100 * reporttest.MiB, Handle: 400 * reporttest.MiB})
		}
		if reports == 20 {
			report()
		}
		l.Tell(walk)
		if reports == 40 {
			report()
		}
		s := l.Snapshot(50, reporttest.Held().Wall)
		var got, sum int64
		for _, h := range Holdings(s) {
			sum += h.Live
			for _, x := range KeptBy(s)[h.Process].Divide(s, &h) {
				if x.Name() == state && h.Mark == MarkOlder {
					got += int64(x.Bytes)
				}
			}
		}
		if got != 100<<20 || sum != 900<<20 {
			t.Errorf("the allocator reports at %d: the state has %d of %d MiB", reports, got>>20, sum>>20)
		}
	}
}

func TestHoldersOfAHostileWalkAreCleanAndBounded(t *testing.T) {
	const evil = "\x1b]0;x\a\nb\u202e"
	l := ledger.New(ledger.Options{Begin: 1})
	l.Tell(ledger.Process{PID: 7, Comm: evil, Begin: 1})
	l.Apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Time: 2, Size: 4096, Handle: 8192})
	h := ledger.Holder{Path: evil, Class: evil, Container: evil, Containers: 1, Entries: 2, Also: []string{evil}, Frames: []string{evil}, Found: true}
	// more than the allocator has, and an index beyond the list
	storages := []ledger.Storage{{Address: 1, Bytes: 1 << 40}, {Address: 2, Bytes: 512, Holder: 9}}
	l.Tell(ledger.Walk{PID: 7, Time: 3, Problems: []string{evil}, Holders: []ledger.Holder{h}, Storages: storages})
	s := l.Snapshot(4, reporttest.Held().Wall)
	k := KeptBy(s)[0]
	texts := append(slices.Concat(k.Problems, k.Lines[0].Also, k.Lines[0].Frames), k.Lines[0].Path, k.Lines[0].Class, ContainerText(&k.Lines[0]))
	for _, text := range texts {
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) {
			t.Errorf("%q has control characters", text)
		}
	}
	if len(k.Lines) != 1 || k.Lines[0].Bytes != 4096 {
		t.Errorf("lines are %+v", k.Lines)
	}
}

func TestProcessesWithoutHoldersAreNamedByReason(t *testing.T) {
	s := reporttest.Held()
	found, failed := MostKept(s)
	if got := failedTexts(s, failed, true); len(found) != 1 || len(got) != 1 || got[0] != "no holders of infer [4300]: no Python interpreter in the process" {
		t.Errorf("%d found, %q", len(found), got)
	}
	if got := failedTexts(s, append(failed, failed...), true); len(got) != 1 || got[0] != "no holders of 2 processes: no Python interpreter in the processes" {
		t.Errorf("two of one reason are %q", got)
	}
	if got := failedTexts(s, failed, false); got != nil {
		t.Errorf("a server without tensors is named: %q", got)
	}
	if kept := KeptBy(reporttest.TorchSnapshot()); slices.ContainsFunc(kept, func(k *Kept) bool { return k != nil }) {
		t.Error("a session without walks has holders")
	}
}

// TestAWalkChangesNoMemory: a tree of changes does not show what a walk in between has found.
func TestAWalkChangesNoMemory(t *testing.T) {
	s, before := reporttest.Held(), reporttest.Held()
	before.Walks = nil
	if tree := CallTree(s, reporttest.HeldStacks(), Options{Since: before}); tree.Changed != 0 || len(tree.Children) != 0 {
		t.Errorf("%d bytes changed: %+v", tree.Changed, tree.Children)
	}
	tree := CallTree(s, reporttest.HeldStacks(), Options{})
	i := slices.IndexFunc(tree.Children, func(b *Branch) bool { return b.Frame.Function == MarkOlder })
	var sum int64
	for _, b := range tree.Children[i].Children {
		sum += b.Bytes
	}
	if older := tree.Children[i]; sum >= older.Bytes || sum < older.Bytes*99/100 {
		t.Errorf("paths have %d of %d bytes", sum, older.Bytes)
	}
}

// A holder of next to nothing says nothing of who keeps the memory, and one of a part nothing of
// the rest: a walk that ended early has found no holder of it.
func TestAHolderOfNextToNothingIsNotNamed(t *testing.T) {
	line := &HolderLine{Held: ledger.Held{Holder: ledger.Holder{Path: "cache[*]", Found: true}}}
	for bytes, want := range map[uint64]string{
		4: "", 9: "", 10: "1% kept by cache[*]; no holder found for 99%", 400: "40% kept by cache[*]; no holder found for 60%", 990: "kept by cache[*]",
	} {
		if got := KeptText([]HeldShare{{line, bytes}, {nil, 1000 - bytes}}, 1000); got != want {
			t.Errorf("%d of 1000 bytes: %q, want %q", bytes, got, want)
		}
	}
}

func TestSentencesOnHoldersAgreeInNumber(t *testing.T) {
	for n, want := range map[uint64]string{
		1: "1 storage or its holder changed while it was read: its line may be wrong",
		2: "2 storages or their holders changed while they were read: their lines may be wrong",
	} {
		if got := inMotionText(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	for _, reason := range walkFailures { // of several processes
		if got := pluralReason.Replace(reason); strings.Contains(got, "its ") || strings.Contains(got, "process ") || strings.HasSuffix(got, "process") {
			t.Errorf("%q of several: %q", reason, got)
		}
	}
}
