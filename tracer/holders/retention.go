// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// retention returns how the path keeps what it leads to.
func (h *Holder) retention() retention.Set { return h.ways }

// keep sets how the path keeps what it leads to, from its last step and the path before it.
func (h *Holder) keep() {
	s, before := &h.step, h.parent
	h.cache = before.cache || isCacheClass(s.Class) || isCacheName(s.Name)
	if s.Kind == StepGraph { // it stands beside the path
		h.ways, h.owner = before.ways|retention.Graph, before.owner
		return
	}
	h.ways, h.owner = before.ways&^retention.Gradient|s.retention()|s.retentionIn(before.owner), s
	if h.depth == 1 && h.root.Kind == RootModule && h.root.Name == "sys" && strings.HasPrefix(s.Name, "last_") {
		h.ways |= retention.LastError
	}
}

// retention returns what one step says about the way in which a path keeps memory.
func (s *Step) retention() retention.Set {
	switch {
	case s.Kind == StepGrad, s.Kind == StepAttr && s.Name == "grad":
		return retention.Gradient
	case s.Kind == StepLocal && s.Ended:
		return retention.Frame | retention.Ended
	case s.Kind == StepLocal:
		return retention.Frame
	case s.Name == "__traceback__":
		return retention.Traceback
	case s.Ended:
		return retention.Ended
	}
	return 0
}

// resultName is a name that IPython has for a result beside Out: a variable, or an attribute of its
// DisplayHook.
var resultName = lazyregexp.New(`^(_{1,3}|_\d+)$`)

// isResultName reports whether a path ends with such a name.
func (h *Holder) isResultName() bool {
	if h.depth == 0 || h.step.Kind != StepAttr || !resultName.MatchString(h.step.Name) {
		return false
	}
	return h.depth == 1 && h.root.Kind == RootModule || strings.HasSuffix(h.parent.step.Class, "DisplayHook") || h.depth == 1 && strings.HasSuffix(h.root.Class, "DisplayHook")
}

// retentionIn returns what a step says together with the one before it, which leads to its owner.
func (s *Step) retentionIn(owner *Step) retention.Set {
	switch {
	case owner.Class == "_lru_cache_wrapper" && s.Name == "cache":
		return retention.Cache
	case owner.Class == "WeakKeyDictionary" && s.Name == "data":
		return retention.WeakKeys
	case s.OwnKey:
		return retention.OwnKeys
	case (owner.Name == "Out" || owner.Name == "_oh") && s.Kind == StepKey:
		return retention.Results
	case owner.Name == "state" && s.ByTensor: // by parameter
		return retention.OptimizerState
	case owner.Name == "param_groups" && s.Kind == StepIndex:
		return retention.ParamGroups
	}
	return 0
}

// part returns what a storage is of a model.
func (n *namer) part(st *storage, first *Holder) modelpart.Kind {
	set := st.parts
	for _, i := range append([]int32{st.holder}, st.others...) {
		if i < 0 {
			continue
		}
		set |= n.partOf(i, 0)
		for _, e := range n.also[i] {
			set |= n.partBy(e)
		}
	}
	if st.native == ofGraph {
		set |= modelpart.Of(modelpart.Saved)
	}
	if set&scripted != 0 {
		kind := modelpart.Buffer
		if n.metaOf(st.tensor) != 0 {
			kind = modelpart.Weight
		}
		set |= modelpart.Of(kind)
	}
	if set&leaf != 0 && !n.hasWeights {
		return modelpart.Weight
	}
	return (set | modelpart.Of(first.part())).First()
}

// Caches of keys and values: Hugging Face's, vLLM's, SGLang's, Llama's, nanochat's.
var (
	cacheClass = lazyregexp.New(`^((Dynamic|Static|Hybrid|Quantized|Offloaded|SlidingWindow|EncoderDecoder|Sink|KV)\w*Cache|\w+TokenToKVPool)$`)
	cacheName  = lazyregexp.New(`^_?(kv_?caches?|(k|v|key|value)_caches?|cache_[kv]|past_key_values?|past_kv|(k|v|kv)_buffer)$`)
)

// part returns what the names and classes on a path prove.
func (h *Holder) part() modelpart.Kind {
	if h.cache {
		return modelpart.KVCache
	}
	return modelpart.None
}

// Most names are answered without a regular expression.
func isCacheClass(class string) bool {
	return (strings.HasSuffix(class, "Cache") || strings.HasSuffix(class, "Pool")) && cacheClass.MatchString(class)
}

func isCacheName(name string) bool {
	return (strings.Contains(name, "cache") || strings.Contains(name, "past") || strings.HasSuffix(name, "buffer")) && cacheName.MatchString(name)
}

// thing returns what a person would name of the path: the innermost container whose elements,
// without a name, lead to what is kept, and many; else the whole path without its graph.
func (h *Holder) thing() (text string, many bool) {
	steps := h.Steps()
	for k := len(steps) - 1; k >= 0; k-- {
		if steps[k].manyOf() {
			steps, many = steps[:k], true
			break
		}
	}
	var b strings.Builder
	h.root.begin(&b, h.named)
	for _, s := range steps {
		if s.Kind == StepGraph {
			break
		}
		s.write(&b, true, h.named)
	}
	return strings.TrimPrefix(b.String(), "."), many
}

// markParameters marks what optimizers have in param_groups[*]['params'] as weights: also plain
// tensors, such as a picture or 32-bit copies of weights. Paths do not show it, since most lead
// elsewhere.
func (s *search) markParameters() {
	for _, a := range s.optimizers {
		s.eachNamed(a, "param_groups", func(groups uint64) {
			s.eachElement(groups, func(group uint64) {
				if t := s.py.typeOf(group); t == nil || t.kind != kindDict {
					return
				}
				s.py.eachItem(group, func(key, value uint64) {
					if s.py.str(key) == "params" {
						s.eachElement(value, s.markWeight)
					}
				})
			})
		})
	}
}

func (s *search) markWeight(tensor uint64) {
	if !s.isTensor(tensor) {
		return
	}
	impl := s.py.U64(tensor + s.storages.torch.impl)
	if !s.cpp.classOf(impl).is(roleTensor) {
		return
	}
	if st := s.storages.known[s.py.U64(impl+s.storages.torch.storage)]; st != nil {
		st.parts |= modelpart.Of(modelpart.Weight)
	}
}

// eachNamed visits the attribute of an instance that has a name.
func (s *search) eachNamed(a uint64, name string, visit func(value uint64)) {
	is := func(key, value uint64) {
		if s.py.str(key) == name {
			visit(value)
		}
	}
	t := s.py.typeOf(a)
	if t == nil {
		return
	}
	if dict, keys, values := s.py.attributes(a, t); dict != 0 {
		s.py.eachItem(dict, is)
	} else if keys != 0 {
		s.py.eachKey(keys, values, is)
	}
}

// eachElement visits the elements of a list.
func (s *search) eachElement(list uint64, visit func(element uint64)) {
	t := s.py.typeOf(list)
	if t == nil || t.kind != kindList {
		return
	}
	at, n := s.py.U64(list+listItems), s.py.U64(list+obSize)
	if !s.spend(n) {
		return
	}
	for k := uint64(0); k < n && !s.py.late(); k++ {
		visit(s.py.U64(at + 8*k))
	}
}

// endedFrame returns the root of a variable of a function that an error has ended, where the
// interpreter, IPython or another library keeps the traceback to print it: who reads the path looks
// for the function, not for the printer. An error that the program keeps itself is a holder as any
// other.
func (n *namer) endedFrame(to node) (Root, bool) {
	if to.step != StepLocal || to.from < 0 {
		return Root{}, false
	}
	frame := n.nodes[to.from]
	tb := n.tracebackOf(to.from)
	if tb < 0 || n.isOwnError(tb) {
		return Root{}, false
	}
	f := n.frameOf(frame.address)
	if f == nil {
		return Root{}, false
	}
	function, file := f.place()
	r := Root{
		Kind: RootLocal, Name: n.readable(n.auxName(to.aux)), Function: n.readable(function), File: n.readable(file), Line: int(f.line), Ended: true,
	}
	if t := n.py.typeOf(to.address); t != nil {
		r.Class = t.class()
	}
	return r, true
}

// tracebackOf returns the traceback that leads to a frame object, directly or by frames that it
// called, or -1.
func (n *namer) tracebackOf(i int32) int32 {
	for range maxFrames {
		if i < 0 {
			break
		}
		t := n.py.typeOf(n.nodes[i].address)
		if t == nil || n.nodes[i].flags&nodeCPP != 0 || t.kind != kindFrame && t.kind != kindTraceback {
			break
		}
		if t.kind == kindTraceback {
			return i
		}
		i = n.nodes[i].from
	}
	return -1
}

// isOwnError reports whether the program keeps an error: neither the path's root belongs to a
// library or to the interpreter, nor does the instance that has the error or its traceback.
func (n *namer) isOwnError(i int32) bool {
	if !n.search.roots[n.rootOf(i)].own {
		return false
	}
	for range maxDepth {
		if i < 0 {
			break
		}
		to := n.nodes[i]
		t := n.py.typeOf(to.address)
		if t == nil || to.flags&nodeCPP != 0 {
			break
		}
		if t.kind == kindOther && t.flags&flagError == 0 {
			return !n.libraries[n.py.moduleOf(t)]
		}
		i = to.from
	}
	return true
}
