// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

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
			s.stop("stopped after the time limit")
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

// expandAgain expands what changed while it was copied, as it is in the process now, and what this leads
// to: a graph that grows by some nodes in each step has them all behind its newest one.
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
