// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

// expandThreadLocal enters the attributes that a threading.local has in each thread: one of its
// fields is a dictionary of dictionaries.
func (x *pythonExpander) expandThreadLocal(i int32, a, size uint64, cost int) {
	for o := uint64(16); o+8 <= size; o += 8 {
		d := x.py.U64(a + o)
		if t := x.py.typeOf(d); t == nil || t.kind != kindDict {
			continue
		}
		x.py.eachItem(d, func(_, attributes uint64) {
			if t := x.py.typeOf(attributes); t != nil && t.kind == kindDict {
				x.pushPython(attributes, i, stepDict, 0, cost+costField)
			}
		})
	}
}

// expandQueue enters the elements of a queue.SimpleQueue: a list until 3.12, then a ring: its
// memory, how many fit, how many there are.
func (x *pythonExpander) expandQueue(i int32, a, size uint64, cost int) {
	for o := uint64(16); o+24 <= size; o += 8 {
		v, fit, n := x.py.U64(a+o), x.py.U64(a+o+8), x.py.U64(a+o+16)
		if t := x.py.typeOf(v); t != nil && t.kind == kindList {
			x.pushPython(v, i, stepThrough, 0, cost+costItem)
		} else if t == nil && peek.Pointer(v) && fit >= 8 && fit <= 1<<20 && fit&(fit-1) == 0 && n <= fit {
			x.expandArray(i, v, fit, StepElement, cost)
		}
	}
}

// expandObjects enters the objects in an array of NumPy: its data, dimensions and their number, the type
// of its elements. A view has none of its own.
func (x *pythonExpander) expandObjects(i int32, a uint64, cost int) {
	const owns, maxDimensions = 4, 64
	if x.py.U32(a+64)&owns == 0 || !x.hasObjects(x.py.U64(a+56)) {
		return
	}
	dimensions, n := x.py.U64(a+32), uint64(1)
	for k := range uint64(min(x.py.U32(a+24), maxDimensions)) {
		n *= min(x.py.U64(dimensions+8*k), maxEntries)
		if n > maxEntries {
			return
		}
	}
	descr, at := x.py.U64(a+56), x.py.U64(a+16)
	if x.py.U8(descr+24) == 'O' {
		x.expandArray(i, at, n, StepElement, cost)
		return
	}
	if n *= x.elementWords(descr); peek.Pointer(at) && x.spend(n) {
		for k := uint64(0); k < n && !x.py.late() && x.py.Page(at+8*k) != nil; k++ {
			x.pushPython(x.py.U64(at+8*k), i, StepElement, k, cost+costItem)
		}
	}
}

// hasObjects reports whether a NumPy type is an object, or a record of which one is. NumPy 2 has
// wider flags at another place.
func (x *pythonExpander) hasObjects(descr uint64) bool {
	switch x.py.U8(descr + 24) {
	case 'O':
		return true
	case 'V':
		return x.py.U8(descr+27)&1 != 0 || x.numpy2(descr) && x.py.U64(descr+32)&1 != 0
	}
	return false
}

// numpy2 reports whether a type is laid out as since NumPy 2: an object has 8 bytes at another place.
func (x *pythonExpander) numpy2(descr uint64) bool { return x.py.U32(descr+36) == 0 }

// elementWords returns the words of an element, of at most 4 KiB.
func (x *pythonExpander) elementWords(descr uint64) uint64 {
	bytes := uint64(x.py.U32(descr + 32))
	if x.numpy2(descr) {
		bytes = x.py.U64(descr + 40)
	}
	return min(bytes, maxStructure) / 8
}
