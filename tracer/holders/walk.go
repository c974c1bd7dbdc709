// SPDX-License-Identifier: Apache-2.0

// Package holders finds who keeps the GPU memory of a running PyTorch: for each storage the Python
// path that keeps it alive, such as "model.layers.3.fc1.weight" or "Trainer.history[*]". It only
// reads memory: the process is not stopped, and no code runs in it. It copies resident memory,
// finds CPython's objects and PyTorch's in the copy, and searches the cheapest path from modules
// and frames to each storage.
//
// Everything that is read is hostile. Counts, bytes, depths and times are bounded; a process that
// changes its memory on purpose only spoils the answer about itself.
package holders

import (
	"context"
	"errors"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	// DefaultMemory is the most that a walk copies by default: 1 GiB.
	DefaultMemory = 1 << 30
	// DefaultObjects is the most objects that a walk looks at by default.
	DefaultObjects = 20 << 20

	// What a walk of a command takes at most: of a processor, of time in which its reads wait for
	// the process, and on the clock.
	defaultTime    = 30 * time.Second
	defaultWaiting = 20 * time.Second
	defaultTotal   = 2 * time.Minute
)

// Limits are those of a walk that somebody waits for.
func Limits() deadline.Limits {
	return deadline.Limits{Processor: defaultTime, Waiting: defaultWaiting, Total: defaultTotal}
}

// ErrExec reports a process that has executed another program while it was read.
var ErrExec = errors.New("it executed another program while it was read")

// Walk finds who holds each storage of a process. If the process changed meanwhile and many bytes
// have no holder, Walk reads it once more, and returns the result with fewer such bytes. When ctx
// is done, it returns what it has found, or the cause if that is nothing: see deadline.Walk.
func Walk(ctx context.Context, mem peek.Memory, o Options) (*Result, error) {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	if o.MaxObjects <= 0 {
		o.MaxObjects = DefaultObjects
	}
	o.MaxObjects = min(o.MaxObjects, 1<<30)
	begin := time.Now()
	first, torn, err := once(ctx, mem, o)
	if err != nil || !torn {
		return first, err
	}
	second, _, err := once(ctx, mem, o)
	if errors.Is(err, ErrExec) {
		return nil, err
	}
	best := first
	if err == nil && second.pathless() < first.pathless() {
		best = second
	}
	best.Problems = append(best.Problems, "the process changed while it was read, and was read twice")
	best.Times.Total = time.Since(begin)
	return best, nil
}

// once walks once. torn reports that a second walk may find more.
func once(ctx context.Context, mem peek.Memory, o Options) (result *Result, torn bool, err error) {
	w := &walk{Options: o, ctx: ctx, mem: mem, begin: time.Now(), result: &Result{At: time.Now()}}
	p, running := mem.(*peek.Process)
	if running {
		w.result.Execution = p.Execution()
	}
	if c, is := mem.(*peek.Copy); is {
		w.copy, w.mem = c, c.Memory()
	} else {
		w.copy = peek.NewCopy(mem, o.MaxMemory)
		defer w.copy.Close()
		if err := w.copy.Take(ctx); err != nil {
			return nil, false, err
		}
	}
	w.live, _ = w.mem.(*peek.Process)
	if err := w.run(ctx); err != nil {
		return nil, false, &WalkError{err}
	}
	if running && w.result.Execution.Differs(p.Execution()) {
		return nil, false, ErrExec
	}
	return w.result, running && w.changed && w.result.pathless() > maxPathless, nil
}

// maxPathless is the share of bytes without a holder above which a walk is repeated if lists or
// containers changed meanwhile: a list that grew while it was copied loses all that it holds.
const maxPathless = 0.05

// search finds the cheapest path from a root to each object.
type search struct {
	pythonExpander
	most int // expandAll leaves nodes that cost more
}

func newSearch(py *python, maxObjects int) *search {
	s := &search{most: maxCost}
	s.graph = graph{queue: make([][]int32, maxCost+1), also: map[int32][]edge{}, nameIDs: map[string]uint64{}, maxNodes: maxObjects, adopted: map[int]int32{}}
	s.index.nodes = &s.nodes
	s.heap = heap{py: py, cpp: newRTTI(py.Copy)}
	s.storages = &storages{heap: &s.heap, known: map[uint64]*storage{}, most: maxObjects}
	s.modules, s.nn = map[uint64]bool{}, map[uint64]bool{}
	return s
}

// expandAll expands the nodes that cost at most s.most, in the order of their cost.
func (s *search) expandAll() {
	for s.low = 0; ; {
		i, is := s.next(s.most)
		if !is {
			return
		}
		s.expand(i)
		if s.py.late() {
			s.stop(s.py.clock.text())
		}
		if s.stopped != "" {
			return
		}
	}
}

// list visits what an expansion of an object finds. Nothing of it enters the search.
func (s *search) list(a uint64, visit func(held uint64), expand func(i int32)) {
	last := int32(len(s.nodes))
	s.nodes = append(s.nodes, node{address: a, from: -1})
	s.visit = visit
	expand(last)
	s.visit, s.nodes = nil, s.nodes[:last]
}

// maxAlive is how many objects of a running process one try of expandAgain expands.
const maxAlive = 1 << 16

// expandAgain expands what changed while it was copied, as it is in the process now, and what this
// leads to: a graph that grows by some nodes in each step has them all behind its newest one.
func (s *search) expandAgain(live peek.Memory) {
	const tries = 3
	copied := s.py.Copy
	defer s.readFrom(copied)
	for range tries {
		again := s.doubtful
		if len(again) == 0 || s.stopped != "" {
			return
		}
		s.doubtful = nil
		copied.Refresh()
		now := peek.NewCopy(live, 64<<20)
		s.readFrom(now)
		for _, i := range again {
			s.expand(i)
		}
		s.low = 0
		for range maxAlive {
			i, is := s.next(s.most)
			if !is || s.stopped != "" || s.py.late() {
				break
			}
			s.expand(i)
		}
		copied.Renew(now) // names and shapes are read later
		now.Close()
		s.readFrom(copied)
		kept := s.doubtful
		s.expandAll()
		s.doubtful = append(kept, s.doubtful...)
	}
}

// readFrom makes a copy what objects of Python and of C++ are read from.
func (s *search) readFrom(c *peek.Copy) { s.py.Copy, s.cpp.Copy = c, c }
