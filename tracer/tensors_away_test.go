// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestReportsAreDetachedAndAttachedAgainAndOtherProbesStay: tensors in between are not seen,
// allocations from CUDA are.
func TestReportsAreDetachedAndAttachedAgainAndOtherProbesStay(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", nil, "alloc a 1000", "totals", "wait", "alloc b 1000", "alloc c 1000", "foreign f 5M", "totals", "wait", "alloc d 1000", "totals", "wait", "alloc e 1000", "totals", "wait")
	seen := func(stop string, tensors uint64) {
		t.Helper()
		p.totals()
		s := m.snapshot()
		if got := tensorsOf(t, s, p.pid())[0].AllocObjects; got != tensors {
			t.Errorf("%s: %d tensors, want %d", stop, got, tensors)
		}
	}
	reports := m.prober.Reports()
	pids := []uint32{p.pid()}
	detach := func() {
		t.Helper()
		if err := reports.Detach(pids); err != nil {
			t.Fatal(err)
		}
	}
	seen("attached", 1)
	begin := time.Now()
	detach()
	t.Logf("it took %v to detach", time.Since(begin))
	detach() // changes nothing
	p.next()
	seen("detached", 1)
	sites := m.snapshot().Sites
	if !slices.ContainsFunc(sites, func(x ledger.Site) bool { return x.Kind != ledger.Tensor && x.LiveBytes == 5<<20 }) {
		t.Errorf("the allocation from CUDA is missing: %+v", sites)
	}
	for _, again := range []string{"attached again", "attached twice"} {
		begin = time.Now()
		if err := reports.Attach(pids); err != nil {
			t.Fatal(err)
		}
		t.Logf("it took %v: %s", time.Since(begin), again)
	}
	p.next()
	seen("attached again", 2)
	for range 20 { // no hit is lost after a change
		detach()
		if err := reports.Attach(pids); err != nil {
			t.Fatal(err)
		}
	}
	p.next()
	seen("after many changes", 3)
}

// TestWhatIsAllocatedWhileTheProbeIsAwayHasNoStackAndNoOldOne: a block at the address of an earlier
// one must not get its stack.
func TestWhatIsAllocatedWhileTheProbeIsAwayHasNoStackAndNoOldOne(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", nil, "site 1", "alloc a 1000000", "alloc b 5000", "totals", "wait",
		"site 2", "free a", "alloc c 1000000", "totals", "wait",
		"site 3", "alloc d 2000000", "free b", "totals", "wait", "free c", "free d", "totals", "wait")
	check := func(stop string, live, older, allocated uint64) ledger.Tensors {
		t.Helper()
		told := p.totals()[0]
		s := m.snapshot()
		x := tensorsOf(t, s, p.pid())[0]
		if x.LiveObjects != live || x.AllocObjects != allocated || x.Allocated != told.Allocated || x.Reserved != told.Reserved || x.Older != older {
			t.Errorf("%s: got %+v; want %d live, %d allocated, %d older; the allocator has %+v", stop, x, live, allocated, older, told)
		}
		checkLosses(t, s)
		return x
	}
	sites := func(stop string, want int) {
		t.Helper()
		n := 0
		for _, s := range m.snapshot().Sites {
			if s.Kind == ledger.Tensor && s.LiveBytes > 0 {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d sites have live tensors, want %d", stop, n, want)
		}
	}
	first := check("attached", 2, 0, 2)
	sites("attached", 1)
	pauses := m.pauses(0.02)
	pauses.Pause(p.pid())
	p.next()
	p.totals()
	pauses.Resume(p.pid())
	if x := tensorsOf(t, m.snapshot(), p.pid())[0]; x.LiveObjects != 0 || x.AllocObjects != 2 || x.Sampled != 0 {
		t.Errorf("after the pause: %+v", x)
	}
	sites("after the pause", 0)
	p.next()
	check("traced again", 1, first.Allocated-blockBytes(5000), 3)
	sites("traced again", 1)
	p.next()
	check("all are freed", 0, 0, 3)
	if got := m.meter.Cost().Away; got == 0 {
		t.Error("the pause is not counted")
	}
}

// blockBytes rounds as PyTorch's allocator does.
func blockBytes(size uint64) uint64 { return (size + 511) / 512 * 512 }
