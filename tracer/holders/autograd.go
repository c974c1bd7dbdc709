// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

const (
	maxGuesses = 1 << 16

	undefinedTensor = "N3c1019UndefinedTensorImplE" // stands for no tensor

	sharedEdge = 3 // words of an edge of the graph: the node, its counts, a number
	ownEdge    = 2 // since 2.14, whose nodes count their references themselves
	maxHookLen = 96
	maxWrapped = 8 << 10
)

// nativeExpander enters what objects of C++ hold: tensors, nodes of the autograd graph, what
// pybind11 wraps.
type nativeExpander struct {
	frontier
	storages *storages
	guesses  []guess // what wrapped memory may hold
}

// guess is a word of memory that pybind11 wraps, of no known type, with the address of a tensor or
// of an object of TorchScript. A previous use may have left it.
type guess struct {
	object uint64
	at     uint64 // the word
	from   int32
	step   StepKind
	cost   int
}

// expandCPP enters what a C++ object holds.
func (x *nativeExpander) expandCPP(i int32, a uint64, cost int) {
	c := x.cpp.classOf(a)
	if !x.storages.torch.found {
		return
	}
	switch {
	case c.is(roleTensor):
		x.expandImpl(i, a, cost)
		if o := x.storages.torch.object; o != 0 {
			if v := x.py.U64(a+o) &^ 1; x.isTensor(v) {
				x.pushPython(v, i, stepThrough, 0, cost+costThrough)
			}
		}
	case c.is(roleStorage):
		x.claim(a, 0, i)
	case c.is(roleNode):
		x.expandNode(i, a, c, cost)
	case c.is(roleScript):
		x.expandSaved(i, a+16, min(max(x.chunk(a), 32), maxWrapped)-16, 0, cost)
	default: // wrapped by pybind11: of any class, with the allocator's size
		x.nodes[i].flags |= nodeWrapped
		x.expandSaved(i, a, min(x.chunk(a), maxWrapped), 0, cost)
	}
	x.work++
}

// expandNode enters what a node of the autograd graph saves, and the nodes it leads to. Weak
// pointers to nodes lie directly in it, strong ones in its vector of edges.
func (x *nativeExpander) expandNode(i int32, a uint64, c *class, cost int) {
	size := x.extent(a)
	words := uint64(sharedEdge)
	if !peek.Pointer(x.py.U64(a + 8)) {
		words = ownEdge
	}
	x.expandSaved(i, a+16, size-16, words, cost)
	if !c.is(rolePythonNode) {
		return
	}
	for o := uint64(16); o+8 <= size; o += 8 {
		v := x.py.U64(a + o)
		if t := x.py.typeOf(v); t != nil && t.kind == kindOther && !t.tensor {
			x.pushPython(v, i, StepContext, 0, cost+costSaved)
		}
	}
}

// expandSaved looks at the words of a node or of the context of a custom function. Edge is the
// number of words of an edge, or 0 where there are none.
func (x *nativeExpander) expandSaved(i int32, a, size, edge uint64, cost int) {
	if size > maxChunk || !x.spend(size/8) {
		return
	}
	for o := uint64(0); o+8 <= size; o += 8 {
		v := x.py.U64(a + o)
		if !peek.Pointer(v) {
			continue
		}
		switch c := x.cpp.classOf(v); {
		case c.is(roleTensor):
			x.pushLive(i, v, a+o, stepNext, cost+costSaved)
		case c.is(roleHook):
			x.expandHook(i, v, cost)
		case c.is(roleScript):
			x.pushLive(i, v, a+o, stepThrough, cost+costSaved)
		case c == nil && o+24 <= size:
			x.expandVector(i, v, x.py.U64(a+o+8), x.py.U64(a+o+16), edge, cost)
		}
	}
}

// pushLive enters an object of PyTorch that has references, and that a word leads to.
func (x *nativeExpander) pushLive(i int32, v, at uint64, step StepKind, cost int) {
	switch {
	case x.py.U32(v+8) == 0:
	case x.nodes[i].flags&nodeWrapped == 0:
		x.pushCPP(v, i, step, 0, cost)
	case len(x.guesses) < maxGuesses:
		x.guesses = append(x.guesses, guess{v, at, i, step, cost})
	}
}

// expandHook enters the Python objects of a PyTorch hook: a function, a dictionary of them, what it
// packed.
func (x *nativeExpander) expandHook(i int32, a uint64, cost int) {
	size := min(max(x.chunk(a), 24), maxHookLen)
	for o := uint64(8); o+8 <= size; o += 8 {
		if v := x.py.U64(a + o); x.py.typeOf(v) != nil {
			x.pushPython(v, i, StepHook, 0, cost+costSaved)
		}
	}
}

// expandVector looks at what can be a std::vector: begin, end, end of its memory. Nodes are taken
// from vectors of edges only.
func (x *nativeExpander) expandVector(i int32, begin, end, room, edge uint64, cost int) {
	if !x.isArray(begin, end, room) || !x.spend((end-begin)/8) {
		return
	}
	words := (end - begin) / 8
	for k := range words {
		v := x.py.U64(begin + 8*k)
		if !peek.Pointer(v) {
			continue
		}
		switch c := x.cpp.classOf(v); {
		case c.is(roleTensor):
			x.pushLive(i, v, begin+8*k, stepNext, cost+costSaved)
		case c.is(roleScript):
			x.pushLive(i, v, begin+8*k, stepThrough, cost+costSaved)
		case c.is(roleHook):
			x.expandHook(i, v, cost)
		case edge == 0 || k%edge != 0 || words%edge != 0:
		case c.is(roleNode):
			x.pushCPP(v, i, stepNext, 0, cost+costNext)
		case c == nil && x.isEdge(begin+8*k, edge):
			x.doubt(i)
		}
	}
}

// maxInput bounds the number of an input to a node that an edge can have.
const maxInput = 1 << 16

// isEdge reports whether words can be an edge of the graph whose node has changed: its counts, if
// it has any, and a small number follow.
func (x *nativeExpander) isEdge(a, words uint64) bool {
	return x.py.U64(a+8*words-8)&0xffffffff < maxInput && (words == ownEdge || peek.Pointer(x.py.U64(a+8)))
}

// expandTensor enters what a Python tensor holds besides its attributes.
func (x *nativeExpander) expandTensor(i int32, a uint64, cost int) {
	if !x.storages.torch.found {
		return
	}
	impl := x.py.U64(a + x.storages.torch.impl)
	if !x.cpp.classOf(impl).is(roleTensor) {
		if impl != 0 {
			x.doubt(i)
		}
		return
	}
	x.expandImpl(i, impl, cost)
	for _, o := range []uint64{8, 16} { // PyTorch hooks
		if v := x.py.U64(a + x.storages.torch.impl + o); x.py.typeOf(v) != nil {
			x.pushPython(v, i, StepAttr, x.name("_backward_hooks"), cost+50)
		}
	}
}

// expandImpl enters what a TensorImpl holds: its storage, its gradient, its graph.
func (x *nativeExpander) expandImpl(i int32, impl uint64, cost int) {
	py, at := x.py, x.storages.torch.storage
	if st := py.U64(impl + at); st != 0 {
		x.claim(st, impl, i)
	}
	c := x.cpp.classOf(impl)
	if c.name != tensorImpl { // sparse and nested tensors and wrappers have tensors within
		for o := at + 16; o < min(x.chunk(impl), 1024); o += 8 {
			if v := py.U64(impl + o); v != impl && x.cpp.classOf(v).is(roleTensor) {
				x.pushCPP(v, i, stepThrough, 0, cost+costSaved)
			}
		}
	}
	meta := py.U64(impl + at + 8)
	mc := x.cpp.classOf(meta)
	if !mc.is(roleMeta) {
		if meta != 0 {
			x.doubt(i)
		}
		return
	}
	if grad := py.U64(meta + x.storages.torch.grad); x.cpp.classOf(grad).is(roleTensor) && x.cpp.classOf(grad).name != undefinedTensor {
		x.pushCPP(grad, i, StepGrad, 0, cost+costGrad)
		if st := x.storages.known[py.U64(impl+at)]; st != nil && py.U64(meta+x.storages.torch.grad+8) == 0 {
			st.parts |= leaf
		}
	}
	if fn := py.U64(meta + x.storages.torch.grad + 8); x.cpp.classOf(fn).is(roleNode) {
		x.pushCPP(fn, i, StepGraph, 0, cost+costGraph)
	} else if fn != 0 {
		x.doubt(i)
	}
	if base := x.baseOf(impl); base != 0 {
		x.pushCPP(base, i, StepBase, 0, cost+costGraph)
	}
}

// metaOf returns the AutogradMeta of a TensorImpl, or 0: only what autograd has met has one.
func (x *nativeExpander) metaOf(impl uint64) uint64 {
	if !x.cpp.classOf(impl).is(roleTensor) {
		return 0
	}
	meta := x.py.U64(impl + x.storages.torch.storage + 8)
	if !x.cpp.classOf(meta).is(roleMeta) {
		return 0
	}
	return meta
}

// baseOf returns the tensor that a view keeps as its base, or 0.
func (x *nativeExpander) baseOf(impl uint64) uint64 {
	at := x.storages.torch.storage
	meta := x.py.U64(impl + at + 8)
	if mc := x.cpp.classOf(meta); !mc.is(roleMeta) || mc.name == autogradMeta { // a view knows its base
		return 0
	}
	for o := x.storages.torch.grad + 16; o < min(x.chunk(meta), 512); o += 8 {
		// What has no forward gradient has words that are out of use there: a base has the same
		// storage.
		if v := x.py.U64(meta + o); v != impl && x.cpp.classOf(v).is(roleTensor) && x.py.U64(v+at) == x.py.U64(impl+at) {
			return v
		}
	}
	return 0
}

// claim enters a storage, or adds a holder to it. Nodes are expanded in the order of their cost, so
// the first holder is the cheapest.
func (x *nativeExpander) claim(st, impl uint64, i int32) {
	if x.visit != nil {
		x.visit(st)
		return
	}
	if x.onlyNew > 0 && i < x.onlyNew {
		return
	}
	r := x.storages.known[st]
	if r == nil {
		if r = x.storages.read(st); r == nil {
			return
		}
		r.tensor, r.holder, r.parts = impl, i, x.partOf(i, impl)
		r.use(impl)
		x.storages.enter(r)
		return
	}
	r.parts |= x.partOf(i, impl)
	r.use(impl)
	if r.holder < 0 { // scan found it, and the process leads to it as it is now
		r.tensor, r.holder = impl, i
		return
	}
	// What pybind11 wraps can have words that are out of use: it never is a further holder.
	if r.holder != i && len(r.others) < maxAlso && x.nodes[i].cost < costWrapped {
		r.others = append(r.others, i)
	}
}

// maxPartSteps is how far up from a tensor its part in a model is looked for.
const maxPartSteps = 32

// partOf returns what a tensor is of a model, as its class and the way to its node prove it.
func (x *nativeExpander) partOf(i int32, impl uint64) modelpart.Set {
	if o := x.storages.torch.object; o != 0 && impl != 0 {
		if t := x.py.typeOf(x.py.U64(impl+o) &^ 1); t != nil && t.parameter {
			return modelpart.Of(modelpart.Weight)
		}
	}
	n := x.nodes[i]
	if t := x.py.typeOf(n.address); n.flags&nodeCPP == 0 && t != nil && t.parameter {
		return modelpart.Of(modelpart.Weight)
	}
	return x.partBy(edge{n.aux, n.from, n.step})
}

// partBy returns what one way to a tensor proves. It goes up: what is nearest to the tensor
// decides.
func (x *nativeExpander) partBy(e edge) modelpart.Set {
	direct := true // nothing but the tensor's own objects lies between
	name := ""     // of the latest attribute
	for range maxPartSteps {
		if e.from < 0 {
			break
		}
		from := x.nodes[e.from]
		if e.step == StepAttr || e.step == StepChild {
			name = x.auxName(e.aux)
		}
		switch {
		case direct && (e.step == StepGrad || e.step == StepAttr && strings.HasSuffix(name, "main_grad")):
			return modelpart.Of(modelpart.Gradient)
		case e.step == StepChild && from.step == stepModules:
			switch x.auxName(from.aux) {
			case "_parameters":
				return modelpart.Of(modelpart.Weight)
			case "_buffers":
				return modelpart.Of(modelpart.Buffer)
			}
		case e.step == StepKey && x.isTensor(e.aux) && from.step == StepAttr && x.auxName(from.aux) == "state":
			return modelpart.Of(modelpart.State)
		case direct && from.flags&nodeCPP != 0 && x.isAccumulateGrad(from.address):
			return leaf
		case direct && from.flags&nodeCPP != 0 && x.isScriptObject(from.address):
			return scripted
		}
		if part, is := x.partIn(&from, name); is {
			return part
		}
		direct = direct && e.step == stepThrough
		e = edge{from.aux, from.from, from.step}
	}
	return 0
}

func (x *nativeExpander) isAccumulateGrad(a uint64) bool {
	c := x.cpp.classOf(a)
	return c != nil && c.name == accumulateGrad
}

// isScriptObject reports whether an object is a module of TorchScript, which has its parameters and
// buffers as attributes, or of a class that a script defines.
func (x *nativeExpander) isScriptObject(a uint64) bool {
	c := x.cpp.classOf(a)
	return c != nil && c.name == "N3c106ivalue6ObjectE"
}

// scripted marks an attribute of an object of TorchScript. What was saved as a parameter has met
// autograd, and is a weight; the others are buffers.
const scripted = modelpart.Set(1) << 14

// leaf marks a tensor that gets a gradient. It is a weight where nothing else is: a program without
// parameters trains plain tensors. Elsewhere it can be an input.
const leaf = modelpart.Set(1) << 15

// partIn returns what an object proves of a tensor that it holds by an attribute. is reports
// whether it decides.
func (x *nativeExpander) partIn(n *node, attribute string) (part modelpart.Set, is bool) {
	if n.flags&nodeCPP != 0 {
		return modelpart.Of(modelpart.Saved), x.cpp.classOf(n.address).is(roleNode)
	}
	t := x.py.typeOf(n.address)
	switch {
	case t == nil:
	case t.context:
		return modelpart.Of(modelpart.Saved), true
	case t.parameter:
		return modelpart.Of(modelpart.Weight), true
	case t.optimizer && (attribute == "param_groups" || strings.HasSuffix(attribute, "_hooks")): // PyTorch hooks may keep anything
		return 0, true
	case t.optimizer:
		return modelpart.Of(modelpart.State), true
	}
	return 0, false
}
