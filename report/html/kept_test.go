// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// tape keeps what books are told, and plays it.
type tape struct {
	now  uint64
	list []func(ledger.Books)
	at   []uint64
	next int
}

func (t *tape) add(time uint64, give func(ledger.Books)) {
	t.now = max(t.now, time)
	t.list, t.at = append(t.list, give), append(t.at, t.now)
}

func (t *tape) Apply(e *ledger.Event) {
	event := *e
	t.add(e.Time, func(b ledger.Books) { b.Apply(&event) })
}

func (t *tape) Tell(in ledger.Input) {
	time := t.now
	switch in := in.(type) {
	case ledger.UsageReading:
		time = in.Time
	case ledger.Walk:
		time = in.Time
	}
	t.add(time, func(b ledger.Books) { b.Tell(in) })
}

func (t *tape) PlayTo(time uint64, into ledger.Books) error {
	for ; t.next < len(t.list) && t.at[t.next] <= time; t.next++ {
		t.list[t.next](into)
	}
	return nil
}

func (t *tape) Time() uint64 { return t.at[t.next] }

func (t *tape) Err() error { return nil }

// held is reporttest.Held over time, a moment for each of its 60 seconds.
var held = sync.OnceValue(func() Input {
	session := &tape{}
	reporttest.PlayHeld(session)
	s := reporttest.Held()
	var times []uint64
	for at := s.Begin; at <= s.End; at += second {
		times = append(times, at)
	}
	l := ledger.New(ledger.Options{Begin: s.Begin, Host: s.Host})
	tl, _, err := timeline.Build(session, times, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
	if err != nil {
		panic(err)
	}
	return Input{Snapshot: s, Stacks: reporttest.HeldStacks(), Timeline: tl, Title: "held"}
})

// heldAtTheEnd is held without its timeline.
func heldAtTheEnd() Input {
	in := held()
	in.Timeline = nil
	return in
}

// keeperNamed returns the row of a path.
func keeperNamed(p *payload, path string) int {
	return slices.IndexFunc(p.Kept.Keepers.Path, func(i int) bool { return p.Strings[i] == path })
}

const historyPath = `local "trainer".history[*] of main() (train.py:7)`

// What is kept adds up to what PyTorch's allocator had given out at the walk.
func TestKeepersAddUpToTheAllocator(t *testing.T) {
	in := held()
	p := newPayload(&in)
	w := in.Snapshot.LatestWalk(0)
	var bytes, older, driver uint64
	for i, n := range p.Kept.Keepers.Bytes {
		bytes, older, driver = bytes+n, older+p.Kept.Keepers.Older[i], driver+p.Kept.Keepers.Driver[i]
	}
	if want := w.Allocators[0]; bytes-driver != want.Allocated || older != want.Older || driver != gib || want.Allocated == 0 {
		t.Errorf("%d bytes, %d older, %d of the driver, want those of %+v", bytes-driver, older, driver, want)
	}
	if i := keeperNamed(p, report.NoHolder); i < 0 || p.Kept.Keepers.Bytes[i] != w.Allocators[0].Allocated-w.Allocators[0].Held {
		t.Errorf("memory without a holder is row %d, want %+v", i, w.Allocators[0])
	}
	if n := len(p.Kept.Walks); n != 2 || p.Kept.Walks[0].Time != int64(58*second) || p.Kept.Walks[0].First != int64(second) ||
		p.Kept.Walks[1].Failure != "no Python interpreter in the process" {
		t.Errorf("walks are %+v", p.Kept.Walks)
	}
	history := keeperNamed(p, historyPath)
	if c := p.Kept.Keepers; history < 0 || c.Grown[history] != 560*8*int64(mib) || c.Entries[history] != 560 || p.Strings[c.Container[history]] != "list of 752" {
		t.Errorf("%s is row %d of %+v", historyPath, history, c)
	}
}

// An entry's links are to those who keep it, and have at most what lives of it.
func TestSitesAreLinkedWithWhatKeepsThem(t *testing.T) {
	in := held()
	p := newPayload(&in)
	sums := map[int]uint64{}
	seen := map[string]bool{}
	for i, e := range p.Kept.Links.Entry {
		sums[e] += p.Kept.Links.Bytes[i]
		name := p.Strings[p.Frames.Name[p.Entries.Head[e]]]
		seen[name+" > "+p.Strings[p.Kept.Keepers.Path[p.Kept.Links.Keeper[i]]]] = true
	}
	for e, sum := range sums {
		if sum > uint64(p.Entries.Live[e]) || sum == 0 {
			t.Errorf("holders keep %d of entry %d, which has %d", sum, e, p.Entries.Live[e])
		}
	}
	for _, want := range []string{"Block.forward > " + historyPath, report.MarkOlder + " > model.layers.*.weight", report.MarkOlder + " > " + report.NoHolder} {
		if !seen[want] {
			t.Errorf("no link %s in %v", want, seen)
		}
	}
}

// manyHolders is a session of which so many holders were found.
func manyHolders(n int) Input {
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	l.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: begin})
	l.Tell(ledger.Devices{PID: 7, UUIDs: []string{gpu0}})
	l.Apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, TID: 7, Time: begin + 1, Size: uint64(n) * mib, Handle: uint64(n) * mib})
	for at := range uint64(2) {
		w := ledger.Walk{PID: 7, Time: begin + at*second + 2}
		for i := range n {
			block, layer, name := i/40, i%40/8, []string{"q", "k", "v", "o", "up", "down", "gate", "norm"}[i%8]
			w.Holders = append(w.Holders, ledger.Holder{
				Path:   fmt.Sprintf("model.stage_%d.block_%d.%s.weight", block, layer, name),
				Frames: []string{"__main__", "model", fmt.Sprintf("stage_%d", block), fmt.Sprintf("block_%d", layer), name, "weight"},
				Also:   []string{fmt.Sprintf("ema.stage_%d.block_%d.%s", block, layer, name)}, Found: true, Entries: 1 + i, Container: "dict", Containers: 1,
			})
			w.Storages = append(w.Storages, ledger.Storage{Address: uint64(i+1) << 21, Bytes: mib / 2 * (1 + at) / uint64(1+i%3), Holder: uint32(i)})
		}
		l.Tell(w)
	}
	return Input{Snapshot: l.Snapshot(begin+2*second, time.Unix(1_790_000_000, 0)), Stacks: stackMap{}, Title: "holders"}
}

func TestFourThousandHoldersTakeLessThanATenthOfAMegabyte(t *testing.T) {
	size := func(n int) int { return len(written(t, manyHolders(n))) }
	none, many := size(1), size(4096)
	t.Logf("4,096 holders: %d bytes", many-none)
	if many-none > 100_000 {
		t.Errorf("4,096 holders take %d bytes", many-none)
	}
}

// Beyond the limit holders are summed, and nothing is lost.
func TestSmallHoldersAreSummed(t *testing.T) {
	in := manyHolders(maxKeepers + 3000)
	p := newPayload(&in)
	sum := uint64(0)
	for _, n := range p.Kept.Keepers.Bytes {
		sum += n
	}
	if want := in.Snapshot.LatestWalk(0).Allocators[0].Allocated; sum != want || len(p.Kept.Keepers.Bytes) != maxKeepers+1 {
		t.Errorf("%d holders with %d bytes, want %d with %d", len(p.Kept.Keepers.Bytes), sum, maxKeepers+1, want)
	}
	if keeperNamed(p, "[3,001 smaller holders]") < 0 {
		t.Errorf("last is %q", p.Strings[p.Kept.Keepers.Path[maxKeepers]])
	}
}

// A walk of a program without Python is no part of a page without holders.
func TestNobodyExpectsHoldersOfOtherPrograms(t *testing.T) {
	in := heldAtTheEnd()
	s := *in.Snapshot
	s.Walks = slices.DeleteFunc(slices.Clone(s.Walks), func(w ledger.Walked) bool { return w.Failure == "" })
	in.Snapshot = &s
	if p := newPayload(&in); p.Kept != nil || len(s.Walks) == 0 {
		t.Errorf("%+v of %d walks", p.Kept, len(s.Walks))
	}
}

func TestTheProblemsOfAWalkAreShownOnce(t *testing.T) {
	in := heldAtTheEnd()
	p := newPayload(&in)
	problem, failure := "containers changed while they were read: 36", p.Kept.Walks[1].Failure
	if !slices.Contains(p.Kept.Walks[0].Notes, problem) || failure == "" {
		t.Errorf("walks are %+v", p.Kept.Walks)
	}
	for _, text := range p.Doubts {
		if strings.Contains(text, problem) || strings.Contains(text, failure) {
			t.Errorf("among the doubts again: %s", text)
		}
	}
	s := *in.Snapshot
	s.Stats.Lost = 3
	in.Snapshot = &s
	if more := newPayload(&in).Doubts; len(more) != len(p.Doubts)+1 {
		t.Errorf("with 3 lost events the doubts are %q", more)
	}
}

// A path of any length is shown, without its middle.
func TestTheMiddleOfALongPathIsLeftOut(t *testing.T) {
	in := manyHolders(1)
	h := &in.Snapshot.Walks[len(in.Snapshot.Walks)-1].Held[0]
	h.Frames = strings.Split(strings.Repeat("next ", 3000)+"last", " ")
	p := newPayload(&in)
	if n := slices.Max(p.Kept.Tree.Depth); n != maxPath+1 {
		t.Errorf("%d levels, want %d", n, maxPath+1)
	}
	if last := p.Kept.Tree.Frame[slices.Index(p.Kept.Tree.Depth, maxPath+1)]; p.Strings[p.Frames.Name[last]] != "last" {
		t.Error("the end of the path is left out")
	}
}
