// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
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
	kept     int  // runs of details; segmenters share it
	all      bool // the stack of each tensor is known
}

type contextKey struct {
	file, function string
	line           int
}

// NewFinder returns a Finder. It keeps the phases of the steps that have the points, in ns of the
// session's clock.
func NewFinder(stacks callstack.Stacks, points []uint64) *Finder {
	points = slices.Clone(points[:min(len(points), maxDetails-2)])
	slices.Sort(points)
	return &Finder{stacks: stacks, points: points, known: map[uint64]mark{}, contexts: map[contextKey]uint32{}, callers: make([]callstack.Frame, 1), running: map[uint32]*track{}}
}

// Apply implements ledger.Books.
func (f *Finder) Apply(e *ledger.Event) {
	switch {
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		if t := f.running[e.PID]; t != nil {
			delete(f.running, e.PID)
			f.end(t)
		}
	case e.Space != ledger.Blocks || e.Device == ledger.CPUDevice:
	case e.Op == ledger.Alloc && e.Kind == ledger.Tensor:
		if t := f.track(e); t != nil {
			t.alloc(e, f.mark(e.Stack))
		}
	case e.Op == ledger.Free || e.Op == ledger.Totals:
		if t := f.track(e); t != nil {
			t.other(e)
		}
	}
}

// Tell implements ledger.Books.
func (f *Finder) Tell(in ledger.Input) {
	if rate, ok := in.(ledger.SampleRate); ok {
		f.all = rate.Mean == 0
	}
}

func (f *Finder) track(e *ledger.Event) *track {
	t := f.running[e.PID]
	if t == nil {
		if e.Op != ledger.Alloc || len(f.running) >= maxProcesses {
			return nil
		}
		t = newTrack(e.PID, e.Time, f.points, &f.kept)
		f.running[e.PID] = t
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
	s, ok := t.finish(f.all)
	if !ok || len(f.ended) >= maxEnded {
		return
	}
	for _, context := range t.burst.seen {
		if context > 0 && s.By == Optimizer {
			s.Optimizers = append(s.Optimizers, f.callers[context])
		}
	}
	f.ended = append(f.ended, s)
}

// Steps returns the steps of all processes that have any, by process and time. The Finder must not
// be used afterwards.
func (f *Finder) Steps() []Steps {
	for _, t := range f.running {
		f.end(t)
	}
	slices.SortFunc(f.ended, func(a, b Steps) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.From, b.From)) })
	return f.ended
}
