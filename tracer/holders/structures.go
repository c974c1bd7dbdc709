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

// expandObjects enters the objects in an array of NumPy: its data, dimensions and their number, the
// type of its elements. A view has none of its own.
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

// numpy2 reports whether a type is laid out as since NumPy 2: an object has 8 bytes at another
// place.
func (x *pythonExpander) numpy2(descr uint64) bool { return x.py.U32(descr+36) == 0 }

// elementWords returns the words of an element, of at most 4 KiB.
func (x *pythonExpander) elementWords(descr uint64) uint64 {
	bytes := uint64(x.py.U32(descr + 32))
	if x.numpy2(descr) {
		bytes = x.py.U64(descr + 40)
	}
	return min(bytes, maxStructure) / 8
}

// taskType is asyncio's task, which is a C structure.
const taskType = "_asyncio.Task"

// Fields of a task that lie at the same place in all versions, or at one of two.
const (
	taskLoop      = 16
	taskException = 48
	taskResult    = 56 // before 3.11
	taskResult311 = 64
)

const ownedByFrame = 2 // of a frame whose function has returned or ended, since 3.11: its frame object keeps its variables

// taskField returns the name of a field of a task that has none, as Python code reads it, or "".
func taskField(offset uint64, held *pyType) string {
	switch {
	case held.kind == kindTraceback:
		return ""
	case held.kind == kindGenerator:
		return "_coro"
	case offset == taskException && held.flags&flagError != 0:
		return "_exception"
	case offset == taskResult || offset == taskResult311:
		return "_result"
	}
	return ""
}

// isTaskField reports whether only a task keeps what it has by a name. A context is also that of
// other tasks.
func isTaskField(name string) bool {
	return name == "_coro" || name == "_exception" || name == "_result"
}

// hasEnded reports whether an object is a task or a frame that no code runs in again: a task whose
// coroutine has ended, or whose event loop is closed, or a frame object of a function that has
// returned, which is known since Python 3.11.
func (h *heap) hasEnded(a uint64) bool {
	t := h.py.typeOf(a)
	switch {
	case t == nil:
	case t.kind == kindFrame && !h.py.l.frameObjects():
		f := h.py.U64(a + frameData)
		return f != 0 && h.py.U8(f+h.py.l.frOwner) == ownedByFrame
	case t.name == taskType:
		return h.isClosed(h.py.U64(a+taskLoop)) || h.coroutineEnded(a, t)
	}
	return false
}

// coroutineEnded reports whether the only coroutine that a task has has ended.
func (h *heap) coroutineEnded(a uint64, t *pyType) (ended bool) {
	if h.py.l.frameObjects() {
		return false
	}
	for o := uint64(16); o+8 <= min(t.basic, maxStructure); o += 8 {
		v := h.py.U64(a + o)
		if held := h.py.typeOf(v); held != nil && held.kind == kindGenerator {
			if int8(h.py.U8(v+h.py.l.genState)) < 1 {
				return false
			}
			ended = true
		}
	}
	return ended
}

// isClosed reports whether an event loop of asyncio is closed: its attribute _closed is True.
func (h *heap) isClosed(loop uint64) (closed bool) {
	t := h.py.typeOf(loop)
	if t == nil || !t.heap() {
		return false
	}
	visit := func(key, value uint64) {
		if b := h.py.typeOf(value); b != nil && b.name == "bool" && h.py.str(key) == "_closed" {
			closed = h.py.U32(value+intDigits) == 1
		}
	}
	if dict, keys, values := h.py.attributes(loop, t); dict != 0 {
		h.py.eachItem(dict, visit)
	} else if keys != 0 {
		h.py.eachKey(keys, values, visit)
	}
	return closed
}
