// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"encoding/binary"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	maxStructure  = 4096 // bytes of a C structure that are looked at
	dequeBlock    = 64   // elements in a block of a deque
	maxOptimizers = 1 << 16
)

// pythonExpander enters what objects of Python hold.
type pythonExpander struct {
	nativeExpander
	modules    map[uint64]bool // dictionaries and module objects that are roots
	nn         map[uint64]bool // string objects: whether they read _parameters, _modules or _buffers
	optimizers []uint64        // instances
}

// expand enters all that a node holds.
func (x *pythonExpander) expand(i int32) {
	n := x.nodes[i]
	cost := int(n.cost)
	if n.flags&nodeCPP != 0 {
		x.expandCPP(i, n.address, cost)
		return
	}
	t := x.py.typeOf(n.address)
	if t == nil {
		return
	}
	x.work++
	if x.modules[n.address] {
		if t.kind == kindDict {
			x.expandVariables(i, n.address, cost)
		}
		return
	}
	x.expandPython(i, n.address, t, cost)
}

func (x *pythonExpander) expandPython(i int32, a uint64, t *pyType, cost int) {
	py := x.py
	switch t.kind {
	case kindDict:
		x.expandDict(i, a, cost)
	case kindList:
		x.expandArray(i, py.U64(a+listItems), py.U64(a+obSize), StepIndex, cost)
	case kindTuple:
		x.expandArray(i, a+py.l.tupleItems, py.U64(a+obSize), StepItem, cost)
	case kindSet:
		x.expandSet(i, a, cost)
	case kindDeque:
		x.expandDeque(i, a, cost)
	case kindFunction:
		x.expandFunction(i, a, cost)
		return
	case kindMethod:
		x.pushPython(py.U64(a+methodSelf), i, StepAttr, x.name("__self__"), cost+costBound)
		x.pushPython(py.U64(a+methodFunc), i, StepAttr, x.name("__func__"), cost+costBound)
		return
	case kindCell:
		x.pushPython(py.U64(a+cellValue), i, stepThrough, 0, cost)
		return
	case kindModule:
		x.pushPython(py.U64(a+moduleDict), i, stepDict, 0, cost+costAttr)
		return
	case kindType:
		x.pushPython(py.U64(a+tpDict), i, stepDict, 0, cost+costAttr)
		return
	case kindGenerator:
		x.expandGenerator(i, a, cost)
	case kindFrame:
		x.expandFrame(i, a, cost)
		return
	case kindTraceback:
		x.pushPython(py.U64(a+tbNext), i, stepThrough, 0, cost+costThrough)
		x.pushPython(py.U64(a+tbFrame), i, stepThrough, 0, cost+costError)
		return
	case kindWeak:
		x.pushPython(py.U64(a+24), i, StepAttr, x.name("__callback__"), cost+costField)
		return
	}
	if t.tensor {
		x.expandTensor(i, a, cost)
	}
	x.expandInstance(i, a, t, cost)
}

// expandInstance enters attributes and slots, and of C structures every word that is the address of
// an object.
func (x *pythonExpander) expandInstance(i int32, a uint64, t *pyType, cost int) {
	if t.optimizer && x.visit == nil && len(x.optimizers) < maxOptimizers {
		x.optimizers = append(x.optimizers, a)
	}
	dict, keys, values := x.py.attributes(a, t)
	if dict != 0 {
		x.pushPython(dict, i, stepDict, 0, cost+costThrough)
	} else if keys != 0 {
		x.expandKeys(i, keys, values, StepAttr, cost, costAttr)
	}
	for _, m := range t.members {
		x.pushPython(x.py.U64(a+m.offset), i, StepAttr, x.name(m.name), cost+costAttr)
	}
	if !t.exact || t.kind == kindOther || t.kind == kindGenerator {
		x.expandStructure(i, a, t, cost)
	}
	if t.name == "collections.defaultdict" {
		x.pushPython(x.py.U64(a+48), i, StepAttr, x.name("default_factory"), cost+costField)
	}
}

// expandStructure looks at each word within tp_basicsize, and the items behind it.
func (x *pythonExpander) expandStructure(i int32, a uint64, t *pyType, cost int) {
	if t.tensor || t.kind != kindOther && t.kind != kindGenerator {
		return
	}
	if x.hasEnded(a) {
		cost = max(cost, costError)
	}
	size := min(t.basic, maxStructure)
	if t.item%8 == 0 && t.gc() {
		if n := x.py.U64(a + obSize); n < 4096 {
			size += min(t.item*n, maxStructure)
		}
	}
	switch t.name {
	case "_thread._local":
		x.expandThreadLocal(i, a, size, cost)
		return
	case "_queue.SimpleQueue":
		x.expandQueue(i, a, size, cost)
		return
	}
	if t.array {
		x.expandObjects(i, a, cost)
	}
	if t.context {
		x.expandSaved(i, a+obSize, (t.basic-16)&^7, 0, cost)
	}
	for o := uint64(16); o+8 <= size; o += 8 {
		v := x.py.U64(a + o)
		if !peek.Pointer(v) || o == t.weakOffset || int64(o) == t.dictOffset || x.modules[v] {
			continue
		}
		x.expandWord(i, v, t, o, cost)
	}
}

// expandWord enters what a word of a C structure points to, if that is a Python object or a tensor.
func (x *pythonExpander) expandWord(i int32, v uint64, t *pyType, offset uint64, cost int) {
	if c := x.cpp.classOf(v); c != nil {
		if c.is(roleTensor|roleStorage) || c.is(roleNode) && !t.context {
			far := costField
			if t.pybind {
				far = costWrapped
			}
			x.pushCPP(v, i, StepField, x.name(t.memberAt(offset)), cost+far)
		} else if t.pybind && offset == obSize && x.owns(x.nodes[i].address) && x.wholeChunk(v) {
			x.pushCPP(v, i, StepField, x.name(""), cost+costScript)
		}
		return
	}
	held := x.py.typeOf(v)
	if held == nil && t.pybind && offset == obSize && x.owns(x.nodes[i].address) && x.wholeChunk(v) {
		x.pushCPP(v, i, StepField, x.name(""), cost+costWrapped)
	}
	if held == nil || held.kind == kindType || held.kind == kindModule {
		return
	}
	name := t.memberAt(offset)
	switch {
	case t.name == taskType && name == "":
		name = taskField(offset, held)
	case t.name == "functools._lru_cache_wrapper" && held.kind == kindDict && int64(offset) != t.dictOffset:
		name = "cache" // of links that the collector does not track
		defer func(before bool) { x.untracked = before }(x.untracked)
		x.untracked = true
	case t.name == "functools._lru_cache_wrapper" && held.name == "functools._lru_list_elem": // also in the dictionary
		x.pushPython(v, i, stepThrough, 0, cost+costEntry)
		return
	case t.name == "functools._lru_list_elem":
		x.pushPython(v, i, stepThrough, 0, cost+costField)
		return
	}
	if name != "" {
		x.pushPython(v, i, StepAttr, x.name(name), cost+costAttr)
	} else {
		x.pushPython(v, i, StepField, 0, cost+costField)
	}
}

// owns reports whether an object of pybind11 owns what it wraps: a pointer, two words of its
// holder, weak references, flags.
func (x *pythonExpander) owns(a uint64) bool {
	const owned, simple = 1, 2
	return x.py.U8(a+48)&(owned|simple) == owned|simple
}

// expandVariables enters the variables of a module.
func (x *pythonExpander) expandVariables(i int32, d uint64, cost int) {
	x.py.eachItem(d, func(key, value uint64) {
		x.pushPython(value, i, StepAttr, key, cost+costAttr+x.direct(value))
	})
}

// direct is what a tensor costs more that is itself a variable.
func (x *pythonExpander) direct(a uint64) int {
	if t := x.py.typeOf(a); t != nil && t.tensor {
		return costDirect
	}
	return 0
}

func (x *pythonExpander) expandDict(i int32, d uint64, cost int) {
	values := x.py.U64(d + dictVals)
	if values != 0 {
		values += x.py.l.dictValues
	}
	step, price := StepKey, costKey
	switch n := x.nodes[i]; n.step {
	case stepDict:
		step, price = StepAttr, costAttr
	case stepModules:
		step, price = StepChild, costChild
	}
	x.expandKeys(i, x.py.U64(d+dictKeys), values, step, cost, price)
}

// expandKeys enters the values of a table of keys, and the keys that are no strings.
func (x *pythonExpander) expandKeys(i int32, keys, values uint64, step StepKind, cost, price int) {
	_, n, general, ok := x.py.keysOf(keys)
	if !ok {
		x.doubt(i)
	}
	if !ok || !x.spend(n) {
		return
	}
	x.py.eachKey(keys, values, func(key, value uint64) {
		kind, far := step, price
		if x.py.typeOf(value) == nil {
			x.doubt(i)
		}
		if step == StepAttr && x.isModuleDict(key, value) {
			kind, far = stepModules, costModules
		}
		x.pushPython(value, i, kind, key, cost+far)
		if general {
			x.pushPython(key, i, StepEntry, 0, cost+costEntry)
		}
	})
}

// isModuleDict reports whether an attribute is one of the dictionaries of a torch.nn.Module.
func (x *pythonExpander) isModuleDict(key, value uint64) bool {
	if t := x.py.typeOf(value); t == nil || t.kind != kindDict {
		return false
	}
	is, known := x.nn[key]
	if !known {
		switch x.py.str(key) {
		case "_parameters", "_modules", "_buffers":
			is = true
		}
		if len(x.nn) < 1<<20 {
			x.nn[key] = is
		}
	}
	return is
}

// expandArray enters the elements of an array of objects.
func (x *pythonExpander) expandArray(i int32, at, n uint64, step StepKind, cost int) {
	if !peek.Pointer(at) || !x.spend(n) {
		return
	}
	for k := uint64(0); k < n; {
		p := x.py.Page(at + 8*k)
		if p == nil || x.py.late() {
			x.doubt(i)
			return
		}
		for o := (at + 8*k) % peek.PageSize; o < peek.PageSize && k < n; o += 8 {
			v := binary.LittleEndian.Uint64(p[o:])
			if v == 0 && step == StepIndex || v != 0 && x.py.typeOf(v) == nil {
				x.doubt(i)
			}
			x.pushPython(v, i, step, k, cost+costItem)
			k++
		}
	}
}

func (x *pythonExpander) expandSet(i int32, a uint64, cost int) {
	mask, at := x.py.U64(a+setMask), x.py.U64(a+setTable)
	if !peek.Pointer(at) || mask >= maxEntries || !x.spend(mask+1) {
		return
	}
	for k := range mask + 1 {
		if k%256 == 0 && (x.py.Page(at+16*k) == nil || x.py.late()) {
			return
		}
		x.pushPython(x.py.U64(at+16*k), i, StepIndex, k, cost+costItem)
	}
}

// expandDeque goes through the blocks: a link, the elements, a link.
func (x *pythonExpander) expandDeque(i int32, a uint64, cost int) {
	n, block, at := x.py.U64(a+obSize), x.py.U64(a+24), x.py.U64(a+40)
	if at >= dequeBlock || !x.spend(n) {
		return
	}
	for k := range n {
		if !peek.Pointer(block) || k%dequeBlock == 0 && x.py.late() {
			return
		}
		x.pushPython(x.py.U64(block+8+8*at), i, StepIndex, k, cost+costItem)
		if at++; at == dequeBlock {
			block, at = x.py.U64(block+8+8*dequeBlock), 0
		}
	}
}

func (x *pythonExpander) expandFunction(i int32, a uint64, cost int) {
	py, l := x.py, x.py.l
	x.expandClosure(i, a, cost)
	x.pushPython(py.U64(a+l.fnDefaults), i, StepAttr, x.name("__defaults__"), cost+costBound)
	x.pushPython(py.U64(a+l.fnKwdefaults), i, StepAttr, x.name("__kwdefaults__"), cost+costBound)
	x.pushPython(py.U64(a+l.fnDict), i, stepDict, 0, cost+costBound)
	if g := py.U64(a + l.fnGlobals); !x.modules[g] {
		x.pushPython(g, i, StepAttr, x.name("__globals__"), cost+costGlobals)
	}
}

// expandClosure enters the variables of enclosing functions, which the last names of the code are
// for.
func (x *pythonExpander) expandClosure(i int32, a uint64, cost int) {
	py := x.py
	closure := py.U64(a + py.l.fnClosure)
	n := py.U64(closure + obSize)
	if t := py.typeOf(closure); t == nil || t.kind != kindTuple || n > maxVariables {
		return
	}
	names, _ := py.variableNames(py.U64(a + py.l.fnCode))
	for k := range n {
		aux := x.name("")
		if at := len(names) - int(n) + int(k); at >= 0 && at < len(names) {
			aux = names[at]
		}
		x.pushPython(py.U64(closure+py.l.tupleItems+8*k), i, StepCell, aux, cost+costBound)
	}
}

// expandGenerator enters the local variables of a generator or coroutine that has not ended.
func (x *pythonExpander) expandGenerator(i int32, a uint64, cost int) {
	l := x.py.l
	if l.frameObjects() {
		x.pushPython(x.py.U64(a+l.genFrame), i, stepThrough, 0, cost)
		return
	}
	if int8(x.py.U8(a+l.genState)) >= 1 {
		return
	}
	x.expandLocals(i, x.py.frameAt(a+l.genFrame), cost+costBound)
}

// expandFrame enters the local variables of a frame that an exception or a program keeps.
func (x *pythonExpander) expandFrame(i int32, a uint64, cost int) {
	f, back := a, x.py.U64(a+x.py.l.frPrevious)
	if !x.py.l.frameObjects() {
		if f, back = x.py.U64(a+frameData), x.py.U64(a+frameBack); !peek.Pointer(f) {
			return
		}
	}
	x.pushPython(back, i, stepThrough, 0, cost+costField)
	if x.hasEnded(a) {
		cost = max(cost, costError)
	}
	x.expandLocals(i, x.py.frameAt(f), cost+costField)
}

func (x *pythonExpander) expandLocals(i int32, f *frame, cost int) {
	if f == nil {
		return
	}
	for _, v := range f.variables {
		aux := v.name
		if aux == 0 {
			aux = x.name("")
		}
		if !v.doubtful {
			x.pushPython(v.value, i, StepLocal, aux, cost)
		}
	}
}
