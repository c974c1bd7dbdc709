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
