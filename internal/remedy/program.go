// SPDX-License-Identifier: Apache-2.0

// Package remedy changes recorded programs as a person would change them. From the trace of a
// program's requests to PyTorch's allocator, it makes the trace of the changed program: with
// activation checkpointing, without what a line keeps, with other batches, and so on (see Kind). A
// replay of both traces shows what the change saves.
//
// Everything follows from stack traces and lives of blocks. Where they do not prove what a remedy
// needs to know, it refuses with an error that names what is missing.
package remedy

import (
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Program is a trace, with the stack trace of each block.
type Program struct {
	order
	Trace *allocsim.Trace
	// Element is the size of a weight in bytes. Captures do not have it: 4 is an assumption, which
	// reports of figures name.
	Element uint64

	sites  map[uint32]*site // by Block.Site
	lives  []allocsim.Life
	passes []pass
	beside *Program // nil: none
	last   int      // last Malloc: what is freed later lives until the program ends
}

// Evidence is what a remedy rests on.
type Evidence struct {
	// Count is of executions of the line, calls of the function in trained passes, gradients,
	// tensors of the optimizer's state, passes that were compared, or passes that save something.
	Count int
	// Bytes are what the line kept, what the calls or passes saved for the backward pass, gradients
	// of a step, the optimizer's state, all that is halved, or what scales with the batch in the
	// largest pass.
	Bytes uint64
	After uint64 // the optimizer's state then, in bytes
	// Unknown are bytes that may change or not, which makes Changed a range.
	Unknown uint64
	Ratio   float64 // of the largest to the smallest batch
}

// New returns a program as it ran. Block.Site numbers the stack traces. The trace has the ends of
// steps: see MarkSteps.
func New(t *allocsim.Trace, stacks callstack.Stacks) *Program {
	p := &Program{Element: 4, sites: map[uint32]*site{}}
	var find phase.Finder
	for i := range t.Blocks {
		n := t.Blocks[i].Site
		if p.sites[n] == nil {
			p.sites[n] = siteOf(stacks.Stack(uint64(n)), &find)
		}
	}
	return p.with(t)
}

// with returns the program after a change.
func (p *Program) with(t *allocsim.Trace) *Program {
	q := &Program{Trace: t, Element: p.Element, sites: p.sites, beside: p.beside, lives: t.Lives()}
	q.order = orderOf(q)
	q.findPasses()
	return q
}

// site returns what is known of the stack trace of a block.
func (p *Program) site(block uint32) *site { return p.sites[p.Trace.Blocks[block].Site] }

func (p *Program) size(block uint32) uint64 { return p.Trace.Blocks[block].Requested }

// pass is a forward pass, what it is evaluated with, its backward pass and the optimizer's step:
// indices of operations. Without a backward pass, all of a program is one. Forward and backward
// passes that alternate on one graph, as of a loss in chunks, are one.
type pass struct {
	begin    int // first Malloc
	backward int // first Malloc of the backward pass; -1: none
	stepped  int // last end of a step; -1: none
	end      int // first Malloc of the next pass, or the end of the trace
}

// findPasses divides the trace at each return from a backward pass or the optimizer to a forward
// pass. A batch that is prepared in between belongs to the next one.
func (p *Program) findPasses() {
	now := pass{begin: 0, backward: -1, stepped: -1}
	after := -1 // first Malloc after the last one of the backward pass or the optimizer
	for i, op := range p.Trace.Ops {
		if op.Kind == allocsim.Step {
			now.stepped = i
		}
		if op.Kind != allocsim.Malloc {
			continue
		}
		p.last = i
		s := p.site(op.Block)
		switch {
		case s.backward:
			if now.backward < 0 {
				now.backward = i
			}
			after = -1
		case s.role == optimizer:
			after = -1
		default:
			if after < 0 && (now.backward >= 0 || now.stepped >= 0) {
				after = i
			}
			if s.role == forward && after >= 0 {
				now.end = after
				p.passes = append(p.passes, now)
				now, after = pass{begin: after, backward: -1, stepped: -1}, -1
			}
		}
	}
	now.end = len(p.Trace.Ops)
	p.passes = append(p.passes, now)
	joinPasses(p)
}

// joinPasses joins passes whose graph goes on in later ones: of what their forward passes made, a
// later backward pass frees a part between two of its allocations, where no code of the program
// runs. A state without its graph that the next pass saves, as of truncated sequences, is less.
func joinPasses(p *Program) {
	const (
		some = 2 // a collection of garbage in a user's backward function may free a block
		part = 4 // one of so many bytes that backward passes free
	)
	last := make([]int, len(p.passes))
	crossing := map[[2]int]int{}
	freed, later := make([]uint64, len(p.passes)), make([]uint64, len(p.passes)) // bytes of each forward pass
	inBackward := func(n int) bool {
		return n >= 0 && n < len(p.mallocs) && p.site(p.Trace.Ops[p.mallocs[n]].Block).backward
	}
	for i, op := range p.Trace.Ops {
		if op.Kind != allocsim.Free && op.Kind != allocsim.FreeRequested {
			continue
		}
		if s := p.site(op.Block); s.role != forward || s.backward {
			continue
		}
		n := int(p.before[i])
		if !inBackward(n-1) || !inBackward(n) {
			continue
		}
		from, to := p.passAt(p.lives[op.Block].Malloc), p.passAt(i)
		freed[from] += p.size(op.Block)
		if from == to {
			continue
		}
		later[from] += p.size(op.Block)
		if crossing[[2]int{from, to}]++; crossing[[2]int{from, to}] >= some {
			last[from] = max(last[from], to)
		}
	}
	for n := range last {
		if later[n] < freed[n]/part {
			last[n] = 0
		}
	}
	var joined []pass
	until := -1 // the pass up to which those before go on
	for n, s := range p.passes {
		if n <= until {
			j := &joined[len(joined)-1]
			if j.end = s.end; j.backward < 0 {
				j.backward = s.backward
			}
			j.stepped = max(j.stepped, s.stepped)
		} else {
			joined = append(joined, s)
		}
		until = max(until, last[n])
	}
	p.passes = joined
}

// passAt returns the pass of an operation.
func (p *Program) passAt(op int) int {
	i, _ := slices.BinarySearchFunc(p.passes, op, func(s pass, op int) int {
		if s.end <= op {
			return -1
		}
		return 1
	})
	return min(i, len(p.passes)-1)
}

// stepEnd returns the end of the first pass, from a pass on, in which a step ends.
func (p *Program) stepEnd(from int) int {
	for _, s := range p.passes[from:] {
		if s.stepped >= 0 {
			return s.end
		}
	}
	return len(p.Trace.Ops)
}

// until returns when a block is freed: the index of the operation, or that of the end of the trace
// if the program frees it only when it ends.
func (p *Program) until(block uint32) int {
	if f := p.lives[block].Free; f >= 0 && f < p.last {
		return f
	}
	return len(p.Trace.Ops)
}

// kept reports whether a block lives until the program ends.
func (p *Program) kept(block uint32) bool { return p.until(block) == len(p.Trace.Ops) }

// peak returns the most bytes that a program asks for at a time.
func peak(p *Program) (most uint64) {
	var sum uint64
	for _, op := range p.Trace.Ops {
		switch op.Kind {
		case allocsim.Malloc:
			sum += p.size(op.Block)
		case allocsim.Free, allocsim.FreeRequested:
			sum -= min(sum, p.size(op.Block))
		}
		most = max(most, sum)
	}
	return most
}
