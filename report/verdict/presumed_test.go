// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// paused is a training whose tensors are traced for one to five steps of 20 ms of each 30, as with
// a budget.
type paused struct {
	*program
	t        *testing.T
	live     uint64 // all tensors
	reserved uint64 // segments of 2 MiB
	sizes    map[uint64]uint64
	away     bool
	left     int    // steps, until the phase or the pause ends
	graph    uint64 // by how many stacks of its line what is kept is allocated; 0: one
	since    uint64
}

func newPaused(t *testing.T, seed uint64) *paused {
	p := &paused{program: newProgram(20e6, seed), t: t, sizes: map[uint64]uint64{}, left: 30}
	p.kind = ledger.Tensor
	p.l.Tell(ledger.Process{PID: 7, Begin: start})
	return p
}

func (p *paused) take(line, size uint64) uint64 {
	p.live += size
	for ; p.reserved < p.live; p.reserved += 2 << 20 { // calls of the driver are traced all the time
		p.l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, TID: 7, Time: p.now(), Address: 1<<50 + p.reserved, Size: 2 << 20, Stack: lineSegment, API: "cudaMalloc"})
	}
	p.next += 1 << 30
	p.sizes[p.next] = size
	p.report(ledger.Event{Op: ledger.Alloc, Address: p.next, Size: size, Stack: line})
	return p.next
}

func (p *paused) give(a uint64) {
	p.live -= p.sizes[a]
	delete(p.sizes, a)
	p.report(ledger.Event{Op: ledger.Free, Address: a})
}

func (p *paused) report(e ledger.Event) {
	p.time += 0.001
	if p.away {
		return
	}
	if e.Op == ledger.Alloc { // all are freed or lost at the end
		c := &p.class[ledger.SizeClass(e.Size)]
		c.Allocs, c.Frees, c.AllocBytes, c.FreeBytes = c.Allocs+1, c.Frees+1, c.AllocBytes+e.Size, c.FreeBytes+e.Size
	}
	e.Kind, e.Space, e.API, e.PID, e.TID, e.Time = ledger.Tensor, ledger.Blocks, "torch", 7, 7, p.now()
	e.Told, e.Allocated, e.Reserved = ledger.ToldAllocated, p.live, p.reserved
	p.l.Apply(&e)
}

// tick ends a phase or a pause, in the middle of a step.
func (p *paused) tick() {
	if p.left--; p.left > 0 {
		return
	}
	in := ledger.Untraced{PID: 7, From: p.now(), To: p.now(), Open: true}
	if p.left = 24 + p.rng.IntN(5); p.away {
		in.From, in.Open, p.left = p.since, false, 1+p.rng.IntN(5)
	}
	p.away, p.since = in.Open, p.now()
	p.l.Tell(in)
}

func (p *paused) judged() []Group {
	s := p.last()
	return JudgeLines(s, Judge(s, graphLines{}))
}

// graphLines is lines, where stacks from lineGraph on are all of lineKept.
type graphLines struct{ lines }

func (l graphLines) Stack(id uint64) []callstack.Frame {
	if id >= lineGraph {
		id = lineKept
	}
	return l.lines.Stack(id)
}

// last returns the books at the end.
func (p *paused) last() *ledger.Snapshot {
	for ended := false; !ended; p.left = 0 { // the latest phase has just begun
		ended = p.away
		p.tick()
	}
	p.l.Tell(ledger.TensorReading{Time: p.now(), Totals: []ledger.TensorTotals{{PID: 7, Reported: p.now(), Allocated: p.live, Reserved: p.reserved, Classes: p.class}}})
	p.l.MarkSegments(func(stack uint64) bool { return stack == lineSegment })
	return p.l.Snapshot(p.now(), time.Time{})
}

const (
	lineTemporary = 11
	lineGradient  = 12
	lineKept      = 13
	lineQueue     = 14
	lineSegment   = 15
	lineGraph     = 100
)

// run trains for a minute: temporaries of a step, gradients that live until the next one, a queue
// of the last 40 results, and results that are kept.
func (p *paused) run(queued, kept uint64) []Group {
	var gradient uint64
	var queue []uint64
	p.train(3000, func(i int) {
		batch := p.take(lineTemporary, 1<<20)
		if gradient != 0 {
			p.give(gradient)
		}
		gradient = p.take(lineGradient, 4<<20)
		p.time += 0.3
		if p.rng.IntN(2) == 0 {
			p.tick()
		} else {
			defer p.tick()
		}
		if queue = append(queue, p.take(lineQueue, queued)); len(queue) > 40 {
			p.give(queue[0])
			queue = queue[1:]
		}
		switch {
		case p.graph > 0:
			for n := range p.graph {
				p.take(lineGraph+n, kept/p.graph)
			}
		case kept > 0:
			p.take(lineKept, kept)
		}
		p.time += 0.3
		p.give(batch)
	})
	return p.judged()
}

// TestALeakIsFoundWhileABudgetPausesTracing nine tenths of the time, and at about its true rate;
// what a step or a queue keeps for a while is none.
func TestALeakIsFoundWhileABudgetPausesTracing(t *testing.T) {
	for seed := range uint64(10) {
		p := newPaused(t, seed)
		for _, g := range p.run(24<<10, 64<<10) {
			switch {
			case g.Line.Line != lineKept && g.Class == Leaking:
				t.Errorf("seed %d: false alarm: line %d: %s", seed, g.Line.Line, g.Evidence)
			case g.Line.Line != lineKept:
			case g.Class != Leaking:
				t.Errorf("seed %d: missed: %v, %s", seed, g.Class, g.Evidence)
			default:
				const rate = 64 << 10 * 50 // a second
				if g.Rate.Value < 0.6*rate || g.Rate.Value > 1.6*rate {
					t.Errorf("seed %d: %.0f bytes/s, want %d: %s", seed, g.Rate.Value, rate, g.Evidence)
				}
				if !strings.Contains(g.Evidence, "of the time in which it was traced") {
					t.Errorf("seed %d: the evidence does not say that it is an estimate: %s", seed, g.Evidence)
				}
			}
		}
	}
}

// TestWhatIsFreedInPausesIsNoLeak: the total, which is exact, does not grow.
func TestWhatIsFreedInPausesIsNoLeak(t *testing.T) {
	for seed := range uint64(10) {
		for _, g := range newPaused(t, seed).run(64<<10, 0) {
			if g.Class == Leaking {
				t.Errorf("seed %d: line %d: %s", seed, g.Line.Line, g.Evidence)
			}
		}
	}
}

// TestLinesThatKeepAsMuchAsALeakAreNotToldFromItWhileABudgetPausesTracing: the queue and the leak
// keep as much in each phase, and only one of both can grow.
func TestLinesThatKeepAsMuchAsALeakAreNotToldFromItWhileABudgetPausesTracing(t *testing.T) {
	for seed := range uint64(10) {
		for _, g := range newPaused(t, seed).run(64<<10, 64<<10) {
			if known := g.Line.Line == lineKept || g.Line.Line == lineQueue; g.Class == Leaking || known && !strings.Contains(g.Evidence, "other lines kept as much") {
				t.Errorf("seed %d: line %d: %v, %s", seed, g.Line.Line, g.Class, g.Evidence)
			}
		}
	}
}

// TestAQueueBesideALeakOfManyStacksIsNoLeak: each stack of a graph that is kept keeps less than the
// queue, and all of them explain how much all tensors grow.
func TestAQueueBesideALeakOfManyStacksIsNoLeak(t *testing.T) {
	for seed := range uint64(10) {
		p := newPaused(t, seed)
		p.graph = 12
		for _, g := range p.run(40<<10, 96<<10) {
			if want := g.Line.Line == lineKept; (g.Class == Leaking) != want {
				t.Errorf("seed %d: line %d: %v, %s", seed, g.Line.Line, g.Class, g.Evidence)
			}
		}
	}
}

// TestAllTensorsGrowWhereNoLineIsKnown: "No line grows" must not stand alone while a GPU fills.
func TestAllTensorsGrowWhereNoLineIsKnown(t *testing.T) {
	for _, kept := range []uint64{0, 64 << 10} {
		p := newPaused(t, 1)
		p.run(64<<10, kept)
		s := p.last()
		whole := JudgeWhole(s, JudgeLines(s, Judge(s, lines{})))
		rate := float64(kept) * 50
		if whole[0].Cache.Grows() {
			t.Errorf("its segments hold the tensors, and are no cache: %+v", whole)
		}
		if x := whole[0].Tensors; len(whole) != 1 || x.Grows() != (kept > 0) || x.Rate < 0.7*rate || x.Rate > 1.3*rate {
			t.Errorf("%d bytes are kept in each step: %+v", kept, whole)
		}
	}
}

// TestAnEndedProcessKeepsTheVerdictThatItHadUnderABudget when its sites are archived, and when its
// capture is read from a checkpoint.
func TestAnEndedProcessKeepsTheVerdictThatItHadUnderABudget(t *testing.T) {
	p := newPaused(t, 1)
	p.run(24<<10, 64<<10)
	p.last() // with the segments marked
	p.l.Apply(&ledger.Event{Op: ledger.Exit, PID: 7, TID: 7, Time: p.now()})
	end := p.now()
	leaks := func(l *ledger.Ledger) (list []Group) {
		s := l.Snapshot(end, time.Time{})
		for _, g := range JudgeLines(s, Judge(s, lines{})) {
			if g.Process == 0 && g.Class == Leaking {
				list = append(list, g)
			}
		}
		return list
	}
	running := leaks(p.l)
	if len(running) != 1 || running[0].Line.Line != lineKept || !strings.Contains(running[0].Evidence, "in which it was traced") {
		t.Fatalf("at its end: %+v", running)
	}
	p.l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 8, TID: 8, Time: end + 60e9, Address: 1, Size: 1, API: "cudaMalloc"})
	restored := ledger.New(ledger.Options{})
	if !p.l.Checkpoint(restored, math.MaxInt) || !restored.Restored() {
		t.Fatal("no checkpoint")
	}
	for name, l := range map[string]*ledger.Ledger{"archived": p.l, "from a checkpoint": restored} {
		after := leaks(l)
		if len(after) != 1 || after[0].Line.Line != lineKept || after[0].Rate != running[0].Rate || after[0].Evidence != running[0].Evidence {
			t.Errorf("%s: %+v, at its end %+v", name, after, running)
		}
	}
}
