// SPDX-License-Identifier: Apache-2.0

package holders

// pushPython enters a Python object that node from holds.
func (s *search) pushPython(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if !pointer(a) {
		return
	}
	if s.visit != nil {
		s.visit(a)
		return
	}
	if i, known := s.index.get(a); known {
		if i >= s.onlyNew {
			s.again(i, from, step, aux, cost)
		}
		return
	}
	t := s.py.typeOf(a)
	if t == nil || (t.kind == kindAtom || t.kind == kindStr) && !s.missing[a] {
		return
	}
	if !s.untracked && t.exact && (t.kind == kindDict || t.kind == kindTuple) && from >= 0 && s.py.u64(a-gcHead) == 0 {
		return // the collector does not track it: it holds nothing that is tracked
	}
	var flags uint8
	if t.tensor {
		flags = nodeTensor
	}
	s.add(node{address: a, aux: aux, from: from, step: step, flags: flags}, cost)
}

// pushCPP enters a C++ object.
func (s *search) pushCPP(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if s.visit != nil {
		s.visit(a)
		return
	}
	if i, known := s.index.get(a); known {
		s.again(i, from, step, aux, cost)
		return
	}
	s.add(node{address: a, aux: aux, from: from, step: step, flags: nodeCPP}, cost)
}

// root enters an object that nothing needs to hold.
func (s *search) root(a uint64, r Root, step StepKind, aux uint64, cost int) {
	if len(s.roots) >= 1<<24 {
		return
	}
	if s.atoms && len(s.atomRoots) < maxAtomRoots {
		if t := s.py.typeOf(a); t != nil && t.kind == kindAtom {
			s.atomRoots = append(s.atomRoots, atomRoot{a, r, step, cost})
		}
	}
	s.roots = append(s.roots, r)
	s.pushPython(a, -int32(len(s.roots)), step, aux, cost)
}

// doubt notes a container whose content makes no sense.
func (s *search) doubt(i int32) {
	if n := len(s.doubtful); s.visit == nil && n < maxDoubtful && (n == 0 || s.doubtful[n-1] != i) {
		s.doubtful = append(s.doubtful, i)
	}
}
