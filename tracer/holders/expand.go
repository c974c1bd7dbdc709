// SPDX-License-Identifier: Apache-2.0

package holders

import "encoding/binary"

const (
	maxStructure = 4096 // bytes of a C structure that are looked at
	dequeBlock   = 64   // elements in a block of a deque
)

// expand enters all that a node holds.
func (s *search) expand(i int32) {
	n := s.nodes[i]
	cost := int(n.cost)
	if n.flags&nodeCPP != 0 {
		s.expandCPP(i, n.address, cost)
		return
	}
	t := s.py.typeOf(n.address)
	if t == nil {
		return
	}
	s.work++
	if s.modules[n.address] {
		if t.kind == kindDict {
			s.expandVariables(i, n.address, cost)
		}
		return
	}
	s.expandPython(i, n.address, t, cost)
}

func (s *search) expandPython(i int32, a uint64, t *pyType, cost int) {
	py := s.py
	switch t.kind {
	case kindDict:
		s.expandDict(i, a, cost)
	case kindList:
		s.expandArray(i, py.u64(a+listItems), py.u64(a+obSize), StepIndex, cost)
	case kindTuple:
		s.expandArray(i, a+py.l.tupleItems, py.u64(a+obSize), StepItem, cost)
	case kindSet:
		s.expandSet(i, a, cost)
	case kindDeque:
		s.expandDeque(i, a, cost)
	case kindFunction:
		s.expandFunction(i, a, cost)
		return
	case kindMethod:
		s.pushPython(py.u64(a+methodSelf), i, StepAttr, s.name("__self__"), cost+costBound)
		s.pushPython(py.u64(a+methodFunc), i, StepAttr, s.name("__func__"), cost+costBound)
		return
	case kindCell:
		s.pushPython(py.u64(a+cellValue), i, stepThrough, 0, cost)
		return
	case kindModule:
		s.pushPython(py.u64(a+moduleDict), i, stepDict, 0, cost+costAttr)
		return
	case kindType:
		s.pushPython(py.u64(a+tpDict), i, stepDict, 0, cost+costAttr)
		return
	case kindGenerator:
		s.expandGenerator(i, a, cost)
	case kindFrame:
		s.expandFrame(i, a, cost)
		return
	case kindTraceback:
		s.pushPython(py.u64(a+tbNext), i, stepThrough, 0, cost+costThrough)
		s.pushPython(py.u64(a+tbFrame), i, stepThrough, 0, cost+costError)
		return
	case kindWeak:
		s.pushPython(py.u64(a+24), i, StepAttr, s.name("__callback__"), cost+costField)
		return
	}
	if t.tensor {
		s.expandTensor(i, a, cost)
	}
	s.expandInstance(i, a, t, cost)
}

// expandInstance enters attributes and slots, and of C structures every word that is the address of
// an object.
func (s *search) expandInstance(i int32, a uint64, t *pyType, cost int) {
	dict, keys, values := s.py.attributes(a, t)
	if dict != 0 {
		s.pushPython(dict, i, stepDict, 0, cost+costThrough)
	} else if keys != 0 {
		s.expandKeys(i, keys, values, StepAttr, cost, costAttr)
	}
	for _, m := range t.members {
		s.pushPython(s.py.u64(a+m.offset), i, StepAttr, s.name(m.name), cost+costAttr)
	}
	if !t.exact || t.kind == kindOther || t.kind == kindGenerator {
		s.expandStructure(i, a, t, cost)
	}
	if t.name == "collections.defaultdict" {
		s.pushPython(s.py.u64(a+48), i, StepAttr, s.name("default_factory"), cost+costField)
	}
}

// expandStructure looks at each word within tp_basicsize, and the items behind it.
func (s *search) expandStructure(i int32, a uint64, t *pyType, cost int) {
	if t.tensor || t.kind != kindOther && t.kind != kindGenerator {
		return
	}
	size := min(t.basic, maxStructure)
	if t.item%8 == 0 && t.gc() {
		if n := s.py.u64(a + obSize); n < 4096 {
			size += min(t.item*n, maxStructure)
		}
	}
	switch t.name {
	case "_thread._local":
		s.expandThreadLocal(i, a, size, cost)
		return
	case "_queue.SimpleQueue":
		s.expandQueue(i, a, size, cost)
		return
	}
	if t.array {
		s.expandObjects(i, a, cost)
	}
	if t.context {
		s.expandSaved(i, a+obSize, (t.basic-16)&^7, 0, cost)
	}
	for o := uint64(16); o+8 <= size; o += 8 {
		v := s.py.u64(a + o)
		if !pointer(v) || o == t.weakOffset || int64(o) == t.dictOffset || s.modules[v] {
			continue
		}
		s.expandWord(i, v, t, o, cost)
	}
}

// expandWord enters what a word of a C structure points to, if that is a Python object or a tensor.
func (s *search) expandWord(i int32, v uint64, t *pyType, offset uint64, cost int) {
	if c := s.cpp.classOf(v); c != nil {
		if c.is(roleTensor|roleStorage) || c.is(roleNode) && !t.context {
			far := costField
			if t.pybind {
				far = costWrapped
			}
			s.pushCPP(v, i, StepField, s.name(t.memberAt(offset)), cost+far)
		} else if t.pybind && offset == obSize && s.owns(s.nodes[i].address) && s.wholeChunk(v) {
			s.pushCPP(v, i, StepField, s.name(""), cost+costScript)
		}
		return
	}
	held := s.py.typeOf(v)
	if held == nil && t.pybind && offset == obSize && s.owns(s.nodes[i].address) && s.wholeChunk(v) {
		s.pushCPP(v, i, StepField, s.name(""), cost+costWrapped)
	}
	if held == nil || held.kind == kindType || held.kind == kindModule {
		return
	}
	name := t.memberAt(offset)
	switch {
	case t.name == "functools._lru_cache_wrapper" && held.kind == kindDict && int64(offset) != t.dictOffset:
		name = "cache" // of links that the collector does not track
		defer func(before bool) { s.untracked = before }(s.untracked)
		s.untracked = true
	case t.name == "functools._lru_cache_wrapper" && held.name == "functools._lru_list_elem": // also in the dictionary
		s.pushPython(v, i, stepThrough, 0, cost+costEntry)
		return
	case t.name == "functools._lru_list_elem":
		s.pushPython(v, i, stepThrough, 0, cost+costField)
		return
	}
	if name != "" {
		s.pushPython(v, i, StepAttr, s.name(name), cost+costAttr)
	} else {
		s.pushPython(v, i, StepField, 0, cost+costField)
	}
}

// owns reports whether an object of pybind11 owns what it wraps: a pointer, two words of its holder,
// weak references, flags.
func (s *search) owns(a uint64) bool {
	const owned, simple = 1, 2
	return s.py.u8(a+48)&(owned|simple) == owned|simple
}

// expandVariables enters the variables of a module.
func (s *search) expandVariables(i int32, d uint64, cost int) {
	s.py.eachItem(d, func(key, value uint64) {
		s.pushPython(value, i, StepAttr, key, cost+costAttr+s.direct(value))
	})
}

// direct is what a tensor costs more that is itself a variable.
func (s *search) direct(a uint64) int {
	if t := s.py.typeOf(a); t != nil && t.tensor {
		return costDirect
	}
	return 0
}

func (s *search) expandDict(i int32, d uint64, cost int) {
	values := s.py.u64(d + dictVals)
	if values != 0 {
		values += s.py.l.dictValues
	}
	step, price := StepKey, costKey
	switch n := s.nodes[i]; n.step {
	case stepDict:
		step, price = StepAttr, costAttr
	case stepModules:
		step, price = StepChild, costChild
	}
	s.expandKeys(i, s.py.u64(d+dictKeys), values, step, cost, price)
}

// expandKeys enters the values of a table of keys, and the keys that are no strings.
func (s *search) expandKeys(i int32, keys, values uint64, step StepKind, cost, price int) {
	_, n, general, ok := s.py.keysOf(keys)
	if !ok {
		s.doubt(i)
	}
	if !ok || !s.spend(n) {
		return
	}
	s.py.eachKey(keys, values, func(key, value uint64) {
		kind, far := step, price
		if step == StepAttr && s.isModuleDict(key, value) {
			kind, far = stepModules, costModules
		}
		s.pushPython(value, i, kind, key, cost+far)
		if general {
			s.pushPython(key, i, StepEntry, 0, cost+costEntry)
		}
	})
}

// isModuleDict reports whether an attribute is one of the dictionaries of a torch.nn.Module.
func (s *search) isModuleDict(key, value uint64) bool {
	if t := s.py.typeOf(value); t == nil || t.kind != kindDict {
		return false
	}
	is, known := s.nn[key]
	if !known {
		switch s.py.str(key) {
		case "_parameters", "_modules", "_buffers":
			is = true
		}
		if len(s.nn) < 1<<20 {
			s.nn[key] = is
		}
	}
	return is
}

// expandArray enters the elements of an array of objects.
func (s *search) expandArray(i int32, at, n uint64, step StepKind, cost int) {
	if !pointer(at) || !s.spend(n) {
		return
	}
	for k := uint64(0); k < n; {
		p := s.py.page(at + 8*k)
		if p == nil || s.py.late() {
			s.doubt(i)
			return
		}
		for o := (at + 8*k) % pageSize; o < pageSize && k < n; o += 8 {
			v := binary.LittleEndian.Uint64(p[o:])
			if v == 0 && step == StepIndex || v != 0 && s.py.typeOf(v) == nil {
				s.doubt(i)
			}
			s.pushPython(v, i, step, k, cost+costItem)
			k++
		}
	}
}

func (s *search) expandSet(i int32, a uint64, cost int) {
	mask, at := s.py.u64(a+setMask), s.py.u64(a+setTable)
	if !pointer(at) || mask >= maxEntries || !s.spend(mask+1) {
		return
	}
	for k := range mask + 1 {
		if k%256 == 0 && (s.py.page(at+16*k) == nil || s.py.late()) {
			return
		}
		s.pushPython(s.py.u64(at+16*k), i, StepIndex, k, cost+costItem)
	}
}

// expandDeque goes through the blocks: a link, the elements, a link.
func (s *search) expandDeque(i int32, a uint64, cost int) {
	n, block, at := s.py.u64(a+obSize), s.py.u64(a+24), s.py.u64(a+40)
	if at >= dequeBlock || !s.spend(n) {
		return
	}
	for k := range n {
		if !pointer(block) || k%dequeBlock == 0 && s.py.late() {
			return
		}
		s.pushPython(s.py.u64(block+8+8*at), i, StepIndex, k, cost+costItem)
		if at++; at == dequeBlock {
			block, at = s.py.u64(block+8+8*dequeBlock), 0
		}
	}
}

func (s *search) expandFunction(i int32, a uint64, cost int) {
	py, l := s.py, s.py.l
	s.expandClosure(i, a, cost)
	s.pushPython(py.u64(a+l.fnDefaults), i, StepAttr, s.name("__defaults__"), cost+costBound)
	s.pushPython(py.u64(a+l.fnKwdefaults), i, StepAttr, s.name("__kwdefaults__"), cost+costBound)
	s.pushPython(py.u64(a+l.fnDict), i, stepDict, 0, cost+costBound)
	if g := py.u64(a + l.fnGlobals); !s.modules[g] {
		s.pushPython(g, i, StepAttr, s.name("__globals__"), cost+costGlobals)
	}
}

// expandClosure enters the variables of enclosing functions, which the last names of the code are for.
func (s *search) expandClosure(i int32, a uint64, cost int) {
	py := s.py
	closure := py.u64(a + py.l.fnClosure)
	n := py.u64(closure + obSize)
	if t := py.typeOf(closure); t == nil || t.kind != kindTuple || n > maxVariables {
		return
	}
	names, _ := py.variableNames(py.u64(a + py.l.fnCode))
	for k := range n {
		aux := s.name("")
		if at := len(names) - int(n) + int(k); at >= 0 && at < len(names) {
			aux = names[at]
		}
		s.pushPython(py.u64(closure+py.l.tupleItems+8*k), i, StepCell, aux, cost+costBound)
	}
}

// expandGenerator enters the local variables of a generator or coroutine that has not ended.
func (s *search) expandGenerator(i int32, a uint64, cost int) {
	l := s.py.l
	if l.frameObjects() {
		s.pushPython(s.py.u64(a+l.genFrame), i, stepThrough, 0, cost)
		return
	}
	if int8(s.py.u8(a+l.genState)) >= 1 {
		return
	}
	s.expandLocals(i, s.py.frameAt(a+l.genFrame), cost+costBound)
}

// expandFrame enters the local variables of a frame that an exception or a program keeps.
func (s *search) expandFrame(i int32, a uint64, cost int) {
	f, back := a, s.py.u64(a+s.py.l.frPrevious)
	if !s.py.l.frameObjects() {
		if f, back = s.py.u64(a+frameData), s.py.u64(a+frameBack); !pointer(f) {
			return
		}
	}
	s.pushPython(back, i, stepThrough, 0, cost+costField)
	s.expandLocals(i, s.py.frameAt(f), cost+costField)
}

func (s *search) expandLocals(i int32, f *frame, cost int) {
	if f == nil {
		return
	}
	for _, v := range f.variables {
		aux := v.name
		if aux == 0 {
			aux = s.name("")
		}
		if !v.doubtful {
			s.pushPython(v.value, i, StepLocal, aux, cost)
		}
	}
}
