// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"

	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// track follows one process.
type track struct {
	pid      uint32
	from, to uint64
	devices  []int32
	levels   []uint64 // now; 0 until the allocator reports
	run      *Run     // the one under way
	blocks   map[uint64]block
	left     *int // how many more blocks may be remembered; tracks share it
	full     bool // there were more
	paused   bool // there was a time before from in which the process was not traced
	lines    *lines
	grads    gradients
	burst    burst
	inside   bool // the latest forward pass was in an optimizer's step
	closures bool // an optimizer evaluates a closure several times: only its steps count

	bursts, cycles, zeros, periods segmenter
}

// mark is what the stack of an allocation shows.
type mark struct {
	phase     phase.Phase
	context   uint32 // 0: unknown
	module    bool   // it calls a module
	optimizer bool
	inStep    bool
	read      bool // there are frames
}

// burst follows the steps of optimizers.
type burst struct {
	open    bool
	number  uint32
	working bool     // nothing else was allocated since the optimizer allocated
	last    uint64   // when it last allocated, or freed of that
	current []uint32 // contexts of the one under way
	seen    []uint32 // all contexts, in their order
	whole   bool     // those of the first cycle are known
	next    int      // in seen
	broken  bool     // optimizers do not take turns

	sample sample
}

// clone returns a track that can be finished while the other goes on. What neither changes, they
// share.
func (t *track) clone() *track {
	c := *t
	c.devices, c.levels = slices.Clone(t.devices), slices.Clone(t.levels)
	c.burst.current, c.burst.seen = slices.Clone(t.burst.current), slices.Clone(t.burst.seen)
	if t.run != nil {
		r := *t.run
		r.Levels = slices.Clone(r.Levels)
		for k := range r.Levels {
			r.Levels[k].Points = slices.Clone(r.Levels[k].Points)
		}
		c.run = &r
	}
	for _, x := range c.all() {
		x.unshare()
	}
	return &c
}

func (t *track) all() [4]*segmenter {
	return [...]*segmenter{&t.bursts, &t.cycles, &t.zeros, &t.periods}
}

// alloc takes an allocation that is in the sample with probability p.
func (t *track) alloc(e *ledger.Event, m mark, p float64) {
	t.closures = t.closures || m.inStep
	if m.phase != phase.Unknown && (t.run == nil || t.run.Phase != m.phase || t.run.context != m.context) {
		t.begin(e.Time, m)
	}
	if t.burst.working = m.optimizer; m.optimizer {
		t.burst.open, t.burst.last = true, e.Time
		t.burst.sample.took(p)
		if m.context != 0 && !slices.Contains(t.burst.current, m.context) && len(t.burst.current) < maxFrames {
			t.burst.current = append(t.burst.current, m.context)
		}
	}
	t.total(e)
	t.remove(e.Address, e.Time)
	b := block{size: e.Size, interval: t.lines.interval}
	switch phaseNow := t.phase(); {
	case m.phase == phase.Backward || !m.read && phaseNow == phase.Backward:
		b.backward, b.born = true, t.grads.allocated()
		t.grads.live += e.Size
	case m.phase == phase.Forward && m.context != 0:
		b.context = m.context
		t.lines.allocated(m.context, m.module, e.Size)
	case m.optimizer:
		b.optimizer, b.born = true, t.burst.number
	}
	if t.full = t.full || len(t.blocks) >= maxBlocks || *t.left <= 0; !t.full {
		t.blocks[e.Address] = b
		*t.left--
	}
}

func (t *track) phase() phase.Phase {
	if t.run == nil {
		return phase.Unknown
	}
	return t.run.Phase
}

// other takes a free, or totals alone.
func (t *track) other(e *ledger.Event) {
	t.total(e)
	if e.Op == ledger.Free {
		t.remove(e.Address, e.Time)
	}
}

// remove forgets a block.
func (t *track) remove(address, time uint64) {
	b, known := t.blocks[address]
	if !known {
		return
	}
	delete(t.blocks, address)
	*t.left++
	if b.optimizer && t.burst.working && b.born == t.burst.number {
		t.burst.last = time
	}
	if !b.backward {
		t.lines.freed(b)
	} else if t.grads.free(b) {
		t.cleared()
	}
}

// total takes the allocator's total.
func (t *track) total(e *ledger.Event) {
	if e.Told&ledger.ToldAllocated == 0 || e.Device < 0 {
		return
	}
	k := slices.Index(t.devices, e.Device)
	if k < 0 {
		if len(t.devices) >= maxDevices {
			return
		}
		k = len(t.devices)
		t.devices, t.levels = append(t.devices, e.Device), append(t.levels, e.Allocated)
	}
	t.levels[k] = e.Allocated
	if t.run == nil {
		t.run = &Run{From: e.Time}
	}
	t.run.reach(k, e.Time, t.levels)
}

// reach books a level.
func (r *Run) reach(k int, time uint64, levels []uint64) {
	for len(r.Levels) <= k {
		v := levels[len(r.Levels)]
		r.Levels = append(r.Levels, Level{First: v, Last: v, High: v, HighTime: max(r.From, time)})
	}
	x := &r.Levels[k]
	x.Last = levels[k]
	if x.Last > x.High {
		x.High, x.HighTime = x.Last, time
	}
	if len(x.Points) == maxPoints {
		kept := x.Points[:0]
		for i := 0; i < maxPoints; i += 2 {
			p := x.Points[i]
			p.Bytes = max(p.Bytes, x.Points[i+1].Bytes)
			kept = append(kept, p)
		}
		x.Points = kept
	}
	x.Points = append(x.Points, Point{time, x.Last})
}

// begin ends the current run, and begins the next.
func (t *track) begin(time uint64, m mark) {
	time = max(time, t.from)
	before := t.phase()
	if r := t.run; r != nil {
		r.To = max(time, r.From)
		for _, x := range t.all() {
			x.add(r)
		}
	}
	work := m.phase == phase.Data || m.phase == phase.Forward || m.phase == phase.Evaluation || m.phase == phase.Setup
	if before == phase.Backward && m.phase != phase.Backward {
		t.passEnded()
	}
	if work {
		t.inside = m.inStep
	}
	if t.burst.open && (work || m.phase == phase.Backward) && !t.inside {
		t.burstEnded()
	}
	if work {
		t.boundary()
	}
	if m.phase == phase.Backward && before != phase.Backward {
		t.passBegan()
	}
	t.run = &Run{Phase: m.phase, From: time, context: m.context}
	for k := range t.levels {
		t.run.Levels = append(t.run.Levels, Level{First: t.levels[k], Last: t.levels[k], High: t.levels[k], HighTime: time})
	}
}

// passBegan notes that a backward pass begins.
func (t *track) passBegan() {
	for _, x := range t.all() {
		x.passes++
	}
	t.zeros.unmark()
	t.lines.judge()
	t.grads.begin()
}

// boundary notes that a forward pass, or what comes before it, follows a backward pass.
func (t *track) boundary() {
	if t.periods.passes == 0 {
		return
	}
	t.periods.close(len(t.periods.open))
	t.bursts.mayEnd()
	if t.grads.cleared {
		t.zeros.close(len(t.zeros.open))
		t.grads.cleared = false
		return
	}
	t.zeros.mark()
}

// passEnded notes that a backward pass has ended.
func (t *track) passEnded() {
	if t.grads.end() {
		t.cleared()
	}
}

// cleared notes that gradients were dropped.
func (t *track) cleared() {
	if t.zeros.marked {
		t.zeros.close(t.zeros.at)
		return
	}
	t.grads.cleared = true
}

// burstEnded notes that an optimizer's step has ended. Optimizers that take turns, each once,
// share a step.
func (t *track) burstEnded() {
	b := &t.burst
	b.open, b.working = false, false
	b.number++
	slices.Sort(b.current)
	t.turn(first(b.current))
	b.current = b.current[:0]
	b.sample.ended()
	if b.sample.mayLack(t.bursts.unseen) {
		t.bursts.closeUnseen()
	}
	t.bursts.done = b.last
	t.bursts.close(len(t.bursts.open))
}

func first(list []uint32) uint32 {
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// turn notes whose step has ended.
func (t *track) turn(context uint32) {
	b := &t.burst
	switch {
	case b.broken:
	case context == 0:
		b.broken = true
	case !b.whole && !slices.Contains(b.seen, context):
		b.broken = len(b.seen) >= maxFrames
		b.seen = append(b.seen, context)
	case !b.whole && b.seen[0] == context:
		b.whole, b.next = true, 1%len(b.seen)
		t.cycles.close(t.cycles.at) // up to the step before
	case !b.whole || b.seen[b.next] != context:
		b.broken = true
	default:
		if b.next == 0 {
			t.cycles.close(t.cycles.at)
		}
		b.next = (b.next + 1) % len(b.seen)
	}
	t.cycles.mark()
	t.cycles.done = b.last
}
