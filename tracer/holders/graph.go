// SPDX-License-Identifier: Apache-2.0

package holders

const (
	sharedEdge = 3       // words of an edge of the graph: the node, its counts, a number
	ownEdge    = 2       // since 2.14, whose nodes count their references themselves
	maxVector  = 1 << 20 // bytes
	maxHookLen = 96
	maxWrapped = 8 << 10
)

// expandCPP enters what a C++ object holds.
func (s *search) expandCPP(i int32, a uint64, cost int) {
	c := s.cpp.classOf(a)
	if !s.torch.found {
		return
	}
	switch {
	case c.is(roleTensor):
		s.expandImpl(i, a, cost)
		if o := s.torch.object; o != 0 {
			if v := s.py.u64(a+o) &^ 1; s.isTensor(v) {
				s.pushPython(v, i, stepThrough, 0, cost+costThrough)
			}
		}
	case c.is(roleStorage):
		s.claim(a, 0, i)
	case c.is(roleNode):
		s.expandNode(i, a, c, cost)
	case c.is(roleScript):
		s.expandSaved(i, a+16, min(max(s.chunk(a), 32), maxWrapped)-16, 0, cost)
	default: // wrapped by pybind11: of any class, with the allocator's size
		s.nodes[i].flags |= nodeWrapped
		s.expandSaved(i, a, min(s.chunk(a), maxWrapped), 0, cost)
	}
	s.work++
}

func (s *search) isTensor(a uint64) bool {
	t := s.py.typeOf(a)
	return t != nil && t.tensor
}

// expandNode enters what a node of the autograd graph saves, and the nodes it leads to. Weak
// pointers to nodes lie directly in it, strong ones in its vector of edges.
func (s *search) expandNode(i int32, a uint64, c *class, cost int) {
	size := s.extent(a)
	words := uint64(sharedEdge)
	if !pointer(s.py.u64(a + 8)) {
		words = ownEdge
	}
	s.expandSaved(i, a+16, size-16, words, cost)
	if !c.is(rolePythonNode) {
		return
	}
	for o := uint64(16); o+8 <= size; o += 8 {
		v := s.py.u64(a + o)
		if t := s.py.typeOf(v); t != nil && t.kind == kindOther && !t.tensor {
			s.pushPython(v, i, StepContext, 0, cost+costSaved)
		}
	}
}

// expandSaved looks at the words of a node or of the context of a custom function. Edge is the
// number of words of an edge, or 0 where there are none.
func (s *search) expandSaved(i int32, a, size, edge uint64, cost int) {
	if size > maxChunk || !s.spend(size/8) {
		return
	}
	for o := uint64(0); o+8 <= size; o += 8 {
		v := s.py.u64(a + o)
		if !pointer(v) {
			continue
		}
		switch c := s.cpp.classOf(v); {
		case c.is(roleTensor):
			s.pushLive(i, v, a+o, stepNext, cost+costSaved)
		case c.is(roleHook):
			s.expandHook(i, v, cost)
		case c.is(roleScript):
			s.pushLive(i, v, a+o, stepThrough, cost+costSaved)
		case c == nil && o+24 <= size:
			s.expandVector(i, v, s.py.u64(a+o+8), s.py.u64(a+o+16), edge, cost)
		}
	}
}

// pushLive enters an object of PyTorch that has references, and that a word leads to.
func (s *search) pushLive(i int32, v, at uint64, step StepKind, cost int) {
	switch {
	case s.py.u32(v+8) == 0:
	case s.nodes[i].flags&nodeWrapped == 0:
		s.pushCPP(v, i, step, 0, cost)
	case len(s.guesses) < maxGuesses:
		s.guesses = append(s.guesses, guess{v, at, i, step, cost})
	}
}

// expandHook enters the Python objects of a PyTorch hook: a function, a dictionary of them, what it packed.
func (s *search) expandHook(i int32, a uint64, cost int) {
	size := min(max(s.chunk(a), 24), maxHookLen)
	for o := uint64(8); o+8 <= size; o += 8 {
		if v := s.py.u64(a + o); s.py.typeOf(v) != nil {
			s.pushPython(v, i, StepHook, 0, cost+costSaved)
		}
	}
}

// isArray reports whether three words can be those of a std::vector: begin, end, end of its memory. The
// vector fills a chunk of malloc: words left over from several vectors would have all that lies between them.
func (s *search) isArray(begin, end, room uint64) bool {
	const mapped, rounding = 2, 32
	if !pointer(begin) || begin&15 != 0 || end <= begin || room < end || room-begin > maxVector || (end|room)&7 != 0 {
		return false
	}
	n, most := s.chunk(begin), room-begin+rounding
	if s.py.u64(begin-8)&mapped != 0 {
		most += pageSize
	}
	return room-begin <= n && n <= most && s.wholeChunk(begin)
}

// expandVector looks at what can be a std::vector: begin, end, end of its memory. Nodes are taken
// from vectors of edges only.
func (s *search) expandVector(i int32, begin, end, room, edge uint64, cost int) {
	if !s.isArray(begin, end, room) || !s.spend((end-begin)/8) {
		return
	}
	words := (end - begin) / 8
	for k := range words {
		v := s.py.u64(begin + 8*k)
		if !pointer(v) {
			continue
		}
		switch c := s.cpp.classOf(v); {
		case c.is(roleTensor):
			s.pushLive(i, v, begin+8*k, stepNext, cost+costSaved)
		case c.is(roleScript):
			s.pushLive(i, v, begin+8*k, stepThrough, cost+costSaved)
		case c.is(roleNode) && edge != 0 && k%edge == 0 && words%edge == 0:
			s.pushCPP(v, i, stepNext, 0, cost+costNext)
		case c.is(roleHook):
			s.expandHook(i, v, cost)
		}
	}
}
