// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"math"
	"slices"

	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Finder finds steps in what a session tells its books. It is a ledger.Books, and not for several
// goroutines at once. Its memory is bounded, however long the session is.
type Finder struct {
	stacks   callstack.Stacks
	points   []uint64
	phases   phase.Finder
	known    map[uint64]mark // by stack
	contexts map[contextKey]uint32
	callers  []callstack.Frame // by context, from 1 on
	running  map[uint32]*track // by pid
	ended    []Steps
	limits   limits
	left     int  // sampled tensors that may still be remembered; tracks share it
	kept     int  // runs of details; segmenters share it
	all      bool // the stack of each tensor is known
	sampling ledger.Sampling
	lossy    map[uint32]bool // processes whose events were lost
}

// limits bound what a Finder keeps.
type limits struct {
	steps  int  // records of a process
	blocks int  // live sampled tensors
	ended  int  // processes that have ended
	latest bool // of these the latest stay, not the first
}

// maxKnown is how many stacks are remembered at a time.
const maxKnown = 1 << 16

type contextKey struct {
	file, function string
	line           int
}

// NewFinder returns a Finder. It keeps the phases of the steps that have the points, in ns of the
// session's clock.
func NewFinder(stacks callstack.Stacks, points []uint64) *Finder {
	return newFinder(stacks, points, limits{steps: maxSteps, blocks: maxProcesses * maxBlocks, ended: maxEnded})
}

func newFinder(stacks callstack.Stacks, points []uint64, l limits) *Finder {
	points = slices.Clone(points[:min(len(points), maxDetails-2)])
	slices.Sort(points)
	return &Finder{
		stacks: stacks, points: points, known: map[uint64]mark{}, contexts: map[contextKey]uint32{}, callers: make([]callstack.Frame, 1), running: map[uint32]*track{},
		limits: l, left: l.blocks, lossy: map[uint32]bool{},
	}
}

// Apply implements ledger.Books.
func (f *Finder) Apply(e *ledger.Event) {
	switch {
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		if t := f.running[e.PID]; t != nil {
			f.drop(t)
			f.end(t)
		}
		delete(f.lossy, e.PID)
	case e.Space != ledger.Blocks || e.Device == ledger.CPUDevice:
	case e.Op == ledger.Alloc && e.Kind == ledger.Tensor:
		if t := f.track(e); t != nil {
			t.alloc(e, f.mark(e.Stack), f.probability(e))
		}
	case e.Op == ledger.Free || e.Op == ledger.Totals:
		if t := f.track(e); t != nil {
			t.other(e)
		}
	}
}

// Tell implements ledger.Books.
func (f *Finder) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.SampleRate:
		f.all = in.Mean == 0
	case ledger.Sampling:
		f.sampling = in
	case ledger.Untraced:
		f.untraced(in.PID)
	case ledger.Stats:
		for pid, n := range in.LostBy {
			if n > 0 {
				f.lost(pid)
			}
		}
	}
}

// probability returns how likely a tensor was to be sampled.
func (f *Finder) probability(e *ledger.Event) float64 {
	p := 1.0
	if class := ledger.SizeClass(e.Size); class < len(f.sampling) {
		p = f.sampling[class]
	}
	return math.Ldexp(p, -int(e.Halvings))
}

// lost notes that events of a process were lost.
func (f *Finder) lost(pid uint32) {
	if f.running[pid] != nil {
		f.lossy[pid] = true
	}
}

// forget forgets processes that ended before a time.
func (f *Finder) forget(before uint64) {
	f.ended = slices.DeleteFunc(slices.Clone(f.ended), func(s Steps) bool { return s.To < before })
}

// untraced forgets the steps of a process, or with pid 0 of all: there are some that nobody saw.
func (f *Finder) untraced(pid uint32) {
	for of, t := range f.running {
		if pid == 0 || of == pid {
			f.left += len(t.blocks)
			f.running[of] = f.newTrack(of, t.to)
			f.running[of].paused = true
		}
	}
}

// drop forgets a process that runs.
func (f *Finder) drop(t *track) {
	delete(f.running, t.pid)
	f.left += len(t.blocks)
}

func (f *Finder) newTrack(pid uint32, from uint64) *track {
	t := &track{pid: pid, from: from, to: from, blocks: map[uint64]block{}, left: &f.left, lines: newLines()}
	for _, x := range t.all() {
		x.points, x.lines, x.kept, x.stride, x.room = f.points, t.lines, &f.kept, 1, f.limits.steps
	}
	return t
}

func (f *Finder) track(e *ledger.Event) *track {
	t := f.running[e.PID]
	if t == nil {
		if e.Op != ledger.Alloc || len(f.running) >= maxProcesses {
			return nil
		}
		t = f.newTrack(e.PID, e.Time)
		f.running[e.PID] = t
	} else if t.paused && t.run == nil {
		if e.Op != ledger.Alloc {
			return nil
		}
		t.from = e.Time
	}
	t.to = max(t.to, e.Time)
	return t
}

// mark returns what a stack shows.
func (f *Finder) mark(id uint64) mark {
	if id == 0 || f.stacks == nil {
		return mark{}
	}
	m, known := f.known[id]
	if !known {
		stack := f.stacks.Stack(id)
		m = f.read(stack)
		if len(f.known) >= maxKnown {
			clear(f.known)
		}
		if len(stack) > 0 {
			f.known[id] = m
		}
	}
	return m
}

func (f *Finder) read(stack []callstack.Frame) mark {
	t := f.phases.Of(stack)
	m := mark{phase: t.Phase, module: len(t.Calls) > 0, optimizer: t.Phase == phase.Step && t.Optimizer, inStep: t.InStep, read: len(stack) > 0}
	switch {
	case t.Phase == phase.Recompute:
		m.phase = phase.Backward
		return m
	case t.IsInput():
		m.phase = phase.Data
	}
	if t.Caller >= 0 && t.Caller < len(stack) {
		m.context = f.context(&stack[t.Caller])
	}
	return m
}

// context numbers the lines that call models and optimizers.
func (f *Finder) context(caller *callstack.Frame) uint32 {
	key := contextKey{caller.File, caller.Function, caller.Line}
	n, known := f.contexts[key]
	if !known && len(f.callers) < maxContexts {
		n = uint32(len(f.callers))
		f.contexts[key] = n
		f.callers = append(f.callers, *caller)
	}
	return n
}

// end keeps the steps of a process that has ended.
func (f *Finder) end(t *track) {
	s, ok := f.finish(t)
	if !ok || len(f.ended) >= f.limits.ended && !f.limits.latest {
		return
	}
	if len(f.ended) >= f.limits.ended {
		f.ended = f.ended[1:]
	}
	f.ended = append(f.ended, s)
}

// finish returns the steps of a process up to its latest event; false without any.
func (f *Finder) finish(t *track) (Steps, bool) {
	s, ok := t.finish(f.all)
	if !ok {
		return s, false
	}
	if f.lossy[t.pid] {
		s.Lossy, s.Sure = true, min(s.Sure, Likely)
	}
	for _, context := range t.burst.seen {
		if context > 0 && s.By == Optimizer {
			s.Optimizers = append(s.Optimizers, f.callers[context])
		}
	}
	return s, true
}

// Steps returns the steps of all processes that have any, by process and time. The Finder must not
// be used afterwards.
func (f *Finder) Steps() []Steps {
	for _, t := range f.running {
		f.end(t)
	}
	return sorted(f.ended)
}

// look is Steps of a Finder that goes on.
func (f *Finder) look() []Steps {
	list := slices.Clone(f.ended)
	for _, t := range f.running {
		if s, ok := f.finish(t.clone()); ok {
			list = append(list, s)
		}
	}
	return sorted(list)
}

func sorted(list []Steps) []Steps {
	slices.SortFunc(list, func(a, b Steps) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.From, b.From)) })
	return list
}
