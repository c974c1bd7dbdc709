// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// namer turns nodes into holders. Equal paths become the same holder.
type namer struct {
	*search
	privacy
	libraries map[string]bool
	known     map[link]*Holder
	elements  map[element]*Holder // the same of elements without a name, of which there are most
	paths     map[int32]*Holder   // of nodes on the way to others
	roots     map[Root]*Root
	chain     []int32 // of holder
	// What a model has as a parameter, or an optimizer: then a tensor that only gets a gradient is
	// no weight.
	hasWeights bool
}

// element identifies the holder of an element by that of its container.
type element struct {
	parent *Holder
	t      *pyType
	size   int
}

// link identifies a holder by the one before it.
type link struct {
	root   *Root
	parent *Holder
	step   Step
	object string // of a path with its object
}

func newNamer(s *search, roots *rootFinder) *namer {
	hasWeights := slices.ContainsFunc(s.storages.found, func(st *storage) bool {
		return st.data != 0 && st.deviceType == deviceCUDA && st.parts&modelpart.Of(modelpart.Weight) != 0
	})
	return &namer{hasWeights: hasWeights, search: s, privacy: roots.privacy, libraries: roots.libraries, known: map[link]*Holder{}, elements: map[element]*Holder{}, paths: map[int32]*Holder{}, roots: map[Root]*Root{}}
}

// holder returns the path of a node.
func (n *namer) holder(i int32) *Holder {
	chain := n.chain[:0]
	h := n.paths[i]
	for ; h == nil; h = n.paths[i] {
		chain = append(chain, i)
		from := n.nodes[i].from
		if from < 0 {
			if len(chain) == 1 { // i itself is what is kept
				return n.begin(n.search.roots[-1-from])
			}
			h = n.begin(n.rootAt(i, from))
			break
		}
		i = from
	}
	n.chain = chain
	for k := len(chain) - 1; k > 0; k-- {
		h = n.append(h, n.nodes[chain[k]])
		n.paths[chain[k]] = h
	}
	if len(chain) > 0 {
		h = n.append(h, n.nodes[chain[0]])
	}
	return h
}

// along returns the path of a further way to a node.
func (n *namer) along(i int32, e edge) *Holder {
	if e.from < 0 {
		return n.begin(n.search.roots[-1-e.from])
	}
	to := n.nodes[i]
	to.from, to.step, to.aux = e.from, e.step, e.aux
	return n.append(n.holder(e.from), to)
}

// rootAt returns the root that leads to a node. Where Python does not hold the object there, such
// as the context of an autograd function, its class is all that people know it by.
func (n *namer) rootAt(i, from int32) Root {
	r := n.search.roots[-1-from]
	if r.Kind != RootNone && r.Kind != RootNative {
		return r
	}
	switch node := n.nodes[i]; {
	case node.flags&nodeCPP == 0:
		if t := n.py.typeOf(node.address); t != nil && !t.storage {
			r.Class = t.class()
		}
	case n.cpp.classOf(node.address).is(roleTensor):
		r.Class = "Tensor"
	}
	return r
}

func (n *namer) begin(r Root) *Holder {
	same := r
	same.Now = 0 // a function is read some times, while it goes on
	root := n.roots[same]
	if root == nil {
		root = &r
		n.roots[same] = root
	}
	return n.intern(link{root: root}, nil)
}

// native returns a holder that is no path of Python.
func (n *namer) native(text string) *Holder {
	if text == "" {
		return n.begin(Root{})
	}
	return n.begin(Root{Kind: RootNative, Classes: text})
}

func (n *namer) intern(l link, parent *Holder) *Holder {
	h := n.known[l]
	if h != nil {
		return h
	}
	if parent == nil {
		h = beginning(l.root, !n.hideNames)
	} else {
		h = parent.then(l.step)
	}
	n.known[l] = h
	return h
}

// append adds the step to a node, unless it is one that people do not write. A path through an
// error that was printed begins anew at the variable.
func (n *namer) append(h *Holder, to node) *Holder {
	if to.step != StepIndex || to.flags&nodeCPP != 0 {
		return n.appendStep(h, to)
	}
	e := element{parent: h, t: n.py.typeOf(to.address), size: -1}
	if e.t != nil {
		e.size = n.entries(to.address, e.t)
	}
	next := n.elements[e]
	if next == nil {
		next = n.appendStep(h, to)
		n.elements[e] = next
	}
	return next
}

func (n *namer) appendStep(h *Holder, to node) *Holder {
	if r, is := n.endedFrame(to); is {
		return n.begin(r)
	}
	step, ok := n.stepTo(to)
	if !ok || h.relation == Graph && (step.Kind == StepGraph || step.Kind == StepBase) {
		return h
	}
	if h.step.Kind == stepMore {
		return h
	}
	if h.depth >= maxDepth {
		step = Step{Kind: stepMore, Size: -1}
	}
	return n.intern(link{parent: h, step: step}, h)
}

func (n *namer) stepTo(to node) (Step, bool) {
	s := Step{Kind: to.step, Size: -1}
	switch to.step {
	case stepRoot, stepThrough, stepDict, stepModules, stepNext:
		return s, false
	case StepKey:
		s.Name = n.readable(n.py.str(to.aux))
		s.InTable, s.OwnKey, s.ByTensor = n.inTable(to), n.keepsKey(to), n.isTensor(to.aux)
	case StepChild:
		s.Name = n.readable(n.py.str(to.aux))
		s.InDict = n.inModuleDict(to)
	case StepAttr, StepField, StepCell, StepLocal:
		s.Name = n.readable(n.auxName(to.aux))
	case StepItem:
		s.Index = int(min(to.aux, 8))
	}
	if to.step == StepField && to.flags&nodeCPP != 0 && n.cpp.classOf(to.address).is(roleNode) {
		return Step{Kind: StepGraph, Size: -1}, true
	}
	if to.step == StepLocal && to.from >= 0 {
		s.Function = n.functionOf(n.nodes[to.from].address)
	}
	if to.step == StepLocal || to.step == StepAttr && isTaskField(s.Name) {
		s.Ended = to.from >= 0 && n.nodes[to.from].flags&nodeCPP == 0 && n.hasEnded(n.nodes[to.from].address)
	}
	if to.flags&nodeCPP == 0 {
		if t := n.py.typeOf(to.address); t != nil {
			s.Class = n.classOf(t)
			s.Size = n.entries(to.address, t)
		}
	}
	return s, true
}

// mostNamed is from how many entries on a dictionary is a table of data, not of names.
const mostNamed = 32

// inTable reports whether a value is in a dictionary with so many entries that their keys are data:
// a cache by request or by hash.
func (n *namer) inTable(value node) bool {
	if value.from < 0 {
		return false
	}
	a := n.nodes[value.from].address
	t := n.py.typeOf(a)
	return t != nil && t.kind == kindDict && n.entries(a, t) >= mostNamed
}

// inModuleDict reports whether a child's name is a key that the program chose when it ran.
func (n *namer) inModuleDict(child node) bool {
	i := child.from // its dictionary, that of the attributes, the module
	for i >= 0 && (n.nodes[i].step == stepModules || n.nodes[i].step == stepDict) {
		i = n.nodes[i].from
	}
	if i < 0 || n.nodes[i].flags&nodeCPP != 0 {
		return false
	}
	t := n.py.typeOf(n.nodes[i].address)
	return t != nil && (t.class() == "ModuleDict" || t.class() == "ParameterDict")
}

// isTensor reports whether an object is a tensor.
func (n *namer) isTensor(a uint64) bool {
	t := n.py.typeOf(a)
	return t != nil && t.tensor
}

// keepsKey reports whether the key of a value in a dictionary is a weak reference, and the way to
// what it refers to leads through the value.
func (n *namer) keepsKey(value node) bool {
	if t := n.py.typeOf(value.aux); t == nil || t.kind != kindWeak {
		return false
	}
	i, known := n.index.get(n.py.U64(value.aux + weakObject))
	for depth := 0; known && i >= 0 && depth < maxDepth; depth++ {
		if n.nodes[i].address == value.address {
			return true
		}
		i = n.nodes[i].from
	}
	return false
}

// functionOf returns the function of a generator or of a frame object.
func (n *namer) functionOf(a uint64) string {
	if f := n.frameOf(a); f != nil {
		return n.readable(f.function)
	}
	return ""
}

// frameOf reads the frame of a generator or of a frame object, or returns nil.
func (n *namer) frameOf(a uint64) *frame {
	t, f := n.py.typeOf(a), a
	switch {
	case t == nil || t.kind != kindGenerator && t.kind != kindFrame:
		return nil
	case n.py.l.frameObjects() && t.kind == kindGenerator:
		f = n.py.U64(a + n.py.l.genFrame)
	case n.py.l.frameObjects():
	case t.kind == kindGenerator:
		f = a + n.py.l.genFrame
	default:
		f = n.py.U64(a + frameData)
	}
	return n.py.frameAt(f)
}

func (n *namer) classOf(t *pyType) string { return t.class() }

// entries returns how many entries a container has, or -1.
func (n *namer) entries(a uint64, t *pyType) int {
	size := uint64(0)
	switch t.kind {
	case kindList, kindTuple, kindDeque:
		size = n.py.U64(a + obSize)
	case kindDict:
		size = n.py.U64(a + 16)
	case kindSet:
		size = n.py.U64(a + 24)
	default:
		return -1
	}
	if size > maxEntries {
		return -1
	}
	return int(size)
}

// container returns the innermost container on the way to a node.
func (n *namer) container(i int32) Container {
	for range maxDepth {
		to := n.nodes[i]
		if to.from < 0 {
			break
		}
		i = to.from
		from := n.nodes[i]
		if from.flags&nodeCPP != 0 || to.step != StepKey && to.step != StepIndex && to.step != StepElement && to.step != StepItem {
			continue
		}
		if t := n.py.typeOf(from.address); t != nil {
			return Container{Address: from.address, Class: n.classOf(t), Entries: n.entries(from.address, t)}
		}
	}
	return Container{}
}

// isPath reports whether a person can look for a holder in the source: it is no graph of autograd,
// and begins at a variable.
func (h *Holder) isPath() bool {
	return h.relation != Graph && h.root.Kind != RootCycle && h.root.Kind != RootNative && h.root.Kind != RootNone
}

// further returns the other holders of a storage.
func (n *namer) further(st *storage, first *Holder) (also []*Holder) {
	add := func(h *Holder) {
		if h != first && h.isPath() && len(also) < maxAlso && !slices.Contains(also, h) {
			also = append(also, h)
		}
	}
	for _, e := range n.also[st.holder] {
		add(n.along(st.holder, e))
	}
	for _, i := range st.others {
		add(n.holder(i))
	}
	return also
}
