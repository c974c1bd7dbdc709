// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// away is a process with a small block and two large ones, each with a stack of its own, and 1 MiB
// from before the attach.
type away struct {
	*Ledger
	t       *testing.T
	classes []ClassTotals
}

const (
	awayOlder = 1 << 20
	small     = 512
	large     = 4 << 20
	larger    = 64 << 20
)

func newAway(t *testing.T) *away {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Begin: 1})
	a := &away{Ledger: l, t: t, classes: make([]ClassTotals, SizeClasses)}
	l.Apply(&Event{Kind: Tensor, Op: Allocator, Space: Blocks, PID: 7, Time: 2, Size: awayOlder, Handle: 1 << 30, API: "torch"})
	live := uint64(0)
	for i, size := range []uint64{small, large, larger} {
		live += size
		a.count(size, 1)
		l.Apply(&Event{
			Kind: Tensor, Op: Alloc, Space: Blocks, PID: 7, Time: 3 + uint64(i), Address: 1<<40 + uint64(i)<<30, Size: size, Stack: 1 + uint64(i), API: "torch",
			Told: ToldAllocated | ToldLive, Allocated: awayOlder + live, Reserved: 1 << 30, Live: live,
		})
	}
	a.read(10, awayOlder+live, live)
	return a
}

// count notes a block that was allocated, or freed.
func (a *away) count(size uint64, n int) {
	c := &a.classes[SizeClass(size)]
	if n > 0 {
		c.Allocs, c.AllocBytes = c.Allocs+1, c.AllocBytes+size
	} else {
		c.Frees, c.FreeBytes = c.Frees+1, c.FreeBytes+size
	}
}

// read tells the totals at a time.
func (a *away) read(at, allocated, live uint64) {
	a.Tell(TensorReading{Time: at, Totals: []TensorTotals{{PID: 7, Reported: at, Allocated: allocated, Reserved: 1 << 30, Live: live, Classes: a.classes}}})
}

func (a *away) check(when string, live, untraced, before uint64, stacks ...uint64) {
	a.t.Helper()
	s := a.Snapshot(1000, time.Time{})
	x := s.Tensors[0]
	if x.LiveBytes != live || x.Untraced != untraced || x.Older-x.Untraced != before || x.LiveBytes+x.Older != x.Allocated {
		a.t.Errorf("%s: %d live, %d not traced, %d from before of %d; want %d, %d, %d", when, x.LiveBytes, x.Untraced, x.Older-x.Untraced, x.Allocated, live, untraced, before)
	}
	of := map[uint64]uint64{}
	for i := range s.Sites {
		of[s.Sites[i].Stack] += s.Sites[i].LiveBytes
	}
	for i, want := range stacks {
		if got := of[uint64(1+i)]; got != want {
			a.t.Errorf("%s: stack %d has %d bytes, want %d", when, 1+i, got, want)
		}
	}
	if len(s.Warnings) > 0 {
		a.t.Errorf("%s: %v", when, s.Warnings)
	}
}

func TestOnlyBlocksThatStayedKeepTheirStacks(t *testing.T) {
	const all = awayOlder + small + large + larger
	for name, c := range map[string]struct {
		small, large     uint64
		live, before     uint64
		one, two, three  uint64
		segment, expires bool
	}{
		"nothing was freed":       {0, 0, small + large + larger, awayOlder, small, large, larger, false, false},
		"small ones may be":       {5000, 0, large + larger, awayOlder - 5000, 0, large, larger, false, false},
		"large ones up to 8 MiB":  {0, 8 << 20, small + larger, 0, small, 0, larger, false, false},
		"any":                     {Unknown, Unknown, 0, 0, 0, 0, 0, false, false},
		"its segment is younger":  {0, 0, small + large, awayOlder, small, large, 0, true, false},
		"nothing is known of any": {0, 0, 0, 0, 0, 0, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAway(t)
			a.check("before", small+large+larger, 0, awayOlder, small, large, larger)
			if c.segment { // everything went back to the driver, and the counters were set back
				a.Apply(&Event{Kind: Device, Op: Alloc, Space: Addresses, PID: 7, Time: 15, Address: 1<<40 + 2<<30, Size: larger, Stack: 9, API: "cudaMalloc"})
			}
			in := Untraced{From: 12, To: 20, Stayed: []Stayed{{PID: 7, Small: c.small, Large: c.large}}}
			if c.expires {
				in.Stayed[0].PID = 8
			}
			a.Tell(in)
			for i, size := range []uint64{small, large, larger} {
				if []uint64{c.one, c.two, c.three}[i] == 0 {
					a.count(size, -1)
				}
			}
			const more = 10 << 20 // was allocated meanwhile
			a.read(20, all+more, c.live)
			a.check("after", c.live, all+more-c.live-c.before, c.before, c.one, c.two, c.three)
			a.read(30, c.live+100, c.live) // what is freed later comes off what was not traced first
			a.check("freed", c.live, 100-min(c.before, 100), min(c.before, 100), c.one, c.two, c.three)
		})
	}
}

func TestWhileTensorsAreNotTracedTotalsAreExactAndLinesThoseOfBefore(t *testing.T) {
	const live = small + large + larger
	a := newAway(t)
	a.Tell(Untraced{From: 12, To: 12, Open: true})
	a.read(12, awayOlder+live, live)
	a.check("it begins", live, 0, awayOlder, small, large, larger)
	a.Tell(Untraced{From: 12, To: 20, Open: true})
	a.read(20, awayOlder+live+3000, live)
	a.check("it has more", live, 3000, awayOlder, small, large, larger)
	a.Tell(Untraced{From: 12, To: 30, Open: true, Stayed: []Stayed{{PID: 7, Small: Unknown, Large: 8 << 20}}}) // it has less than its lines
	a.count(small, -1)
	a.count(large, -1)
	a.read(30, larger+2000, larger)
	a.check("it has less", larger, 2000, 0, 0, 0, larger)
	a.Tell(Untraced{From: 12, To: 40, Stayed: []Stayed{{PID: 7, Small: Unknown, Large: 8 << 20}}})
	a.read(40, larger+4000, larger)
	a.check("it ends", larger, 4000, 0, 0, 0, larger)
}

func TestAWalkWhileTensorsAreNotTracedFindsNoLineForAnAddress(t *testing.T) {
	for _, open := range []bool{false, true} {
		a := newAway(t)
		a.Tell(Untraced{From: 12, To: 12, Open: open, Stayed: []Stayed{{PID: 7}}})
		a.read(12, awayOlder+small+large+larger, small+large+larger)
		a.Tell(WalkOpened{PID: 7, Time: 15})
		a.Tell(Walk{PID: 7, Time: 15, Holders: []Holder{{Path: "model.weight", Found: true}}, Storages: []Storage{{Address: 1<<40 + 1<<30, Bytes: large, Block: large}}})
		s := a.Snapshot(100, time.Time{})
		held := 0
		for i := range s.Sites {
			held += len(s.Sites[i].Holders)
		}
		if want := map[bool]int{false: 1, true: 0}[open]; held != want {
			t.Errorf("open %v: %d sites have holders, want %d", open, held, want)
		}
	}
}

// TestWhatWasNotTracedIsNoCache: it lies in segments that were allocated since the attach, or in
// older ones.
func TestWhatWasNotTracedIsNoCache(t *testing.T) {
	for _, c := range []struct{ segments, reserved, wantCached, wantOlder uint64 }{
		{100 << 20, 100 << 20, 30 << 20, 0},        // none is older
		{0, 100 << 20, 0, 30 << 20},                // all are
		{50 << 20, 100 << 20, 15 << 20, 15 << 20},  // as much of each
		{100 << 20, 200 << 20, 65 << 20, 65 << 20}, // likewise
		{100 << 20, 70 << 20, 30 << 20, 0},         // figures of different moments
		{0, 0, 0, 0},                               // nothing is known of segments
		{80 << 20, 100 << 20, 24 << 20, 6 << 20},   // in proportion
	} {
		x := Tensors{Reserved: c.reserved, Segments: c.segments, Cached: c.segments, Older: 70 << 20, Untraced: 70 << 20}
		inside := x.untracedInside(0)
		cached := x.Cached - inside
		older := minus(minus(x.Reserved, x.Segments), x.Older-inside)
		if cached != c.wantCached || older != c.wantOlder {
			t.Errorf("%+v: %d cached and %d in older segments", c, cached, older)
		}
	}
}

func TestAPauseOfAnotherProcessChangesNothing(t *testing.T) {
	const live = small + large + larger
	a := newAway(t)
	a.Tell(Process{PID: 8, Begin: 1})
	a.Tell(Untraced{PID: 8, From: 12, To: 20})
	a.read(20, awayOlder+live, live)
	a.check("of another one", live, 0, awayOlder, small, large, larger)
	if x := a.Snapshot(1000, time.Time{}).Tensors[0]; x.LostAt != 0 {
		t.Errorf("its lines have lost something at %d", x.LostAt)
	}
	a.Tell(Untraced{PID: 7, From: 22, To: 31, Stayed: []Stayed{{PID: 7}}})
	a.read(31, awayOlder+live, live)
	a.check("nothing was freed", live, 0, awayOlder, small, large, larger)
	a.Tell(Untraced{PID: 7, From: 32, To: 41})
	a.read(41, awayOlder+live, 0)
	if x := a.Snapshot(1000, time.Time{}).Tensors[0]; x.LostAt != 40 {
		t.Errorf("lost at %d, want 40", x.LostAt)
	}
}

// TestWhatAProcessHasThatDoesNotRunIsNotPresumedToLive: each step of 10 ns has a gradient and keeps
// an output. Tracing pauses where the process has not run for 100 steps, in the middle of one.
func TestWhatAProcessHasThatDoesNotRunIsNotPresumedToLive(t *testing.T) {
	const output, gradient = 12, 13
	a := newAway(t)
	now, live := uint64(100), uint64(small+large+larger)
	report := func(op Op, address uint64, stack uint64) {
		now += 5
		live += large
		if op == Free {
			live -= 2 * large
		}
		a.Apply(&Event{
			Kind: Tensor, Op: op, Space: Blocks, PID: 7, Time: now, Address: address, Size: large, Stack: stack, API: "torch",
			Told: ToldAllocated | ToldLive, Allocated: awayOlder + live, Reserved: 1 << 30, Live: live,
		})
	}
	for phase := range uint64(4) {
		a.Tell(Untraced{From: now, To: now + 10})
		now, live = now+10, 0
		a.read(now, awayOlder, 0)
		for step := range uint64(8) {
			report(Alloc, 2<<40+(8*phase+step)<<30, output)
			report(Alloc, 1<<40, gradient)
			if step < 7 {
				report(Free, 1<<40, gradient)
			}
		}
		reported := now
		now += 1000
		a.Tell(TensorReading{Time: now, Totals: []TensorTotals{{PID: 7, Reported: reported, Allocated: awayOlder + live, Reserved: 1 << 30, Live: live, Classes: a.classes}}})
	}
	a.Tell(Untraced{From: now, To: now + 10})
	s := a.Snapshot(now+100, time.Time{})
	of := map[uint64]uint64{}
	for i := range s.Sites {
		if x := s.Sites[i].Presumed; x != nil {
			of[s.Sites[i].Stack] += x.LiveBytes / large
		}
	}
	if of[gradient] != 0 || of[output] < 20 {
		t.Errorf("%d gradients and %d outputs of 32 are presumed to live", of[gradient], of[output])
	}
}
