// SPDX-License-Identifier: Apache-2.0

package holders

// expandThreadLocal enters the attributes that a threading.local has in each thread: one of its
// fields is a dictionary of dictionaries.
func (s *search) expandThreadLocal(i int32, a, size uint64, cost int) {
	for o := uint64(16); o+8 <= size; o += 8 {
		d := s.py.u64(a + o)
		if t := s.py.typeOf(d); t == nil || t.kind != kindDict {
			continue
		}
		s.py.eachItem(d, func(_, attributes uint64) {
			if t := s.py.typeOf(attributes); t != nil && t.kind == kindDict {
				s.pushPython(attributes, i, stepDict, 0, cost+costField)
			}
		})
	}
}

// expandQueue enters the elements of a queue.SimpleQueue: a list until 3.12, then a ring: its
// memory, how many fit, how many there are.
func (s *search) expandQueue(i int32, a, size uint64, cost int) {
	for o := uint64(16); o+24 <= size; o += 8 {
		v, fit, n := s.py.u64(a+o), s.py.u64(a+o+8), s.py.u64(a+o+16)
		if t := s.py.typeOf(v); t != nil && t.kind == kindList {
			s.pushPython(v, i, stepThrough, 0, cost+costItem)
		} else if t == nil && pointer(v) && fit >= 8 && fit <= 1<<20 && fit&(fit-1) == 0 && n <= fit {
			s.expandArray(i, v, fit, StepElement, cost)
		}
	}
}

// expandObjects enters the objects in an array of NumPy: its data, dimensions and their number, the type
// of its elements. A view has none of its own.
func (s *search) expandObjects(i int32, a uint64, cost int) {
	const owns, maxDimensions = 4, 64
	if s.py.u32(a+64)&owns == 0 || !s.hasObjects(s.py.u64(a+56)) {
		return
	}
	dimensions, n := s.py.u64(a+32), uint64(1)
	for k := range uint64(min(s.py.u32(a+24), maxDimensions)) {
		n *= min(s.py.u64(dimensions+8*k), maxEntries)
		if n > maxEntries {
			return
		}
	}
	descr, at := s.py.u64(a+56), s.py.u64(a+16)
	if s.py.u8(descr+24) == 'O' {
		s.expandArray(i, at, n, StepElement, cost)
		return
	}
	if n *= s.elementWords(descr); pointer(at) && s.spend(n) {
		for k := uint64(0); k < n && !s.py.late() && s.py.page(at+8*k) != nil; k++ {
			s.pushPython(s.py.u64(at+8*k), i, StepElement, k, cost+costItem)
		}
	}
}

// hasObjects reports whether a NumPy type is an object, or a record of which one is. NumPy 2 has
// wider flags at another place.
func (s *search) hasObjects(descr uint64) bool {
	switch s.py.u8(descr + 24) {
	case 'O':
		return true
	case 'V':
		return s.py.u8(descr+27)&1 != 0 || s.numpy2(descr) && s.py.u64(descr+32)&1 != 0
	}
	return false
}

// numpy2 reports whether a type is laid out as since NumPy 2: an object has 8 bytes at another place.
func (s *search) numpy2(descr uint64) bool { return s.py.u32(descr+36) == 0 }

// elementWords returns the words of an element, of at most 4 KiB.
func (s *search) elementWords(descr uint64) uint64 {
	bytes := uint64(s.py.u32(descr + 32))
	if s.numpy2(descr) {
		bytes = s.py.u64(descr + 40)
	}
	return min(bytes, maxStructure) / 8
}
