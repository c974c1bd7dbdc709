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

// expandTensor enters what a Python tensor holds besides its attributes.
func (s *search) expandTensor(i int32, a uint64, cost int) {
	if !s.torch.found {
		return
	}
	impl := s.py.u64(a + s.torch.impl)
	if !s.cpp.classOf(impl).is(roleTensor) {
		return
	}
	s.expandImpl(i, impl, cost)
	for _, o := range []uint64{8, 16} { // PyTorch hooks
		if v := s.py.u64(a + s.torch.impl + o); s.py.typeOf(v) != nil {
			s.pushPython(v, i, StepAttr, s.name("_backward_hooks"), cost+50)
		}
	}
}

// expandImpl enters what a TensorImpl holds: its storage, its gradient, its graph.
func (s *search) expandImpl(i int32, impl uint64, cost int) {
	py, at := s.py, s.torch.storage
	if st := py.u64(impl + at); st != 0 {
		s.claim(st, impl, i)
	}
	c := s.cpp.classOf(impl)
	if c.name != tensorImpl { // sparse and nested tensors and wrappers have tensors within
		for o := at + 16; o < min(s.chunk(impl), 1024); o += 8 {
			if v := py.u64(impl + o); v != impl && s.cpp.classOf(v).is(roleTensor) {
				s.pushCPP(v, i, stepThrough, 0, cost+costSaved)
			}
		}
	}
	meta := py.u64(impl + at + 8)
	mc := s.cpp.classOf(meta)
	if !mc.is(roleMeta) {
		return
	}
	if grad := py.u64(meta + s.torch.grad); s.cpp.classOf(grad).is(roleTensor) {
		s.pushCPP(grad, i, StepGrad, 0, cost+costGrad)
	}
	if fn := py.u64(meta + s.torch.grad + 8); s.cpp.classOf(fn).is(roleNode) {
		s.pushCPP(fn, i, StepGraph, 0, cost+costGraph)
	}
	if mc.name != autogradMeta { // a view knows its base
		for o := s.torch.grad + 16; o < min(s.chunk(meta), 512); o += 8 {
			// What has no forward gradient has words that are out of use there: a base has the same storage.
			if v := py.u64(meta + o); v != impl && s.cpp.classOf(v).is(roleTensor) && py.u64(v+at) == py.u64(impl+at) {
				s.pushCPP(v, i, StepBase, 0, cost+costGraph)
				break
			}
		}
	}
}

// claim enters a storage, or adds a holder to it. Nodes are expanded in the order of their cost, so
// the first holder is the cheapest.
func (s *search) claim(st, impl uint64, i int32) {
	if s.visit != nil {
		s.visit(st)
		return
	}
	if s.onlyNew > 0 && i < s.onlyNew {
		return
	}
	r := s.storages[st]
	if r == nil {
		if r = s.readStorage(st); r == nil {
			return
		}
		r.tensor, r.holder = impl, i
		s.enterStorage(r)
		return
	}
	// What pybind11 wraps can have words that are out of use: it never is a further holder.
	if r.holder != i && len(r.others) < maxAlso && s.nodes[i].cost < costWrapped {
		r.others = append(r.others, i)
	}
}
