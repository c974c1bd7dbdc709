// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"testing"
)

// TestAPauseOfOneProcessLeavesAllReportsOfTheOther: also while the links are exchanged, when the
// other one allocates and frees without a pause, and in a process that begins later.
func TestAPauseOfOneProcessLeavesAllReportsOfTheOther(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	busy := m.follow("2.6", nil, "rate 1 4 20000", "alloc kept 5000", "totals", "wait")
	p := m.follow("2.6", nil, "alloc a 1000000", "totals", "wait", "alloc b 1000000", "totals", "wait", "alloc c 1000000", "totals", "wait")
	p.totals()
	k := m.pauses(0.02)
	reports := m.prober.Reports()
	check := func(when string, pid uint32, want uint64) {
		t.Helper()
		if got := tensorsOf(t, m.snapshot(), pid)[0].AllocObjects; got != want {
			t.Errorf("%s: %d tensors, want %d", when, got, want)
		}
	}
	for range 5 {
		k.Pause(p.pid())
		k.Resume(p.pid())
		if err := reports.Join(); err != nil {
			t.Fatal(err)
		}
	}
	k.Pause(p.pid())
	p.next()
	p.totals()
	check("paused", p.pid(), 1)
	later := m.follow("2.6", nil, "alloc x 1000000", "totals", "wait")
	later.totals()
	check("begun in the pause", later.pid(), 1)
	k.Resume(p.pid())
	p.next()
	p.totals()
	check("resumed", p.pid(), 2)

	var events, ns uint64
	if _, err := fmt.Fscanf(busy.out, "rate %d %d\n", &events, &ns); err != nil {
		t.Fatal(err)
	}
	told := busy.totals()[0]
	x := tensorsOf(t, m.snapshot(), busy.pid())[0]
	if x.LiveObjects != 1 || x.AllocObjects != events/2+1 || x.Allocated != told.Allocated || x.Untraced != 0 || x.Older != 0 {
		t.Errorf("the other process: %+v after %d events, its allocator has %+v", x, events, told)
	}
	checkLosses(t, m.snapshot())
}

// TestWhereNoneIsPausedAloneAllAre: the probe leaves all processes, and comes back to all.
func TestWhereNoneIsPausedAloneAllAre(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", nil, "alloc a 1000000", "totals", "wait", "alloc b 1000000", "totals", "wait", "alloc c 1000000", "totals", "wait")
	p.totals()
	reports := m.prober.Reports()
	if err := reports.Detach([]uint32{p.pid()}); err != nil {
		t.Fatal(err)
	}
	reports.DetachAll()
	if reports.CanPauseOne() {
		t.Error("one can be paused while all are")
	}
	p.next()
	p.totals()
	if err := reports.AttachAll(); err != nil {
		t.Fatal(err)
	}
	p.next()
	p.totals()
	if got := tensorsOf(t, m.snapshot(), p.pid())[0].AllocObjects; got != 2 {
		t.Errorf("%d tensors, want 2", got)
	}
}
