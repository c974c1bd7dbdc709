// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

const (
	accumulateGrad = "N5torch8autograd14AccumulateGradE"
	maxGraph       = 1 << 20 // nodes of autograd graphs that are looked at
	maxPassed      = 4       // nodes with one input between a function and a parameter: a transposed, a cast weight
)

// Module is the instance of a torch.nn.Module that a tensor was saved in for the backward pass.
type Module struct {
	Name string // "model.blocks.3.mlp.0"; "": unknown
	// A parameter of the module is an input of each function that saved the tensor. Otherwise the
	// functions lie between modules with parameters, and Name is what these have in common.
	Sure bool
}

// savedNode is a node of an autograd graph.
type savedNode struct {
	next, users []int32 // functions whose output it took, and those that took its output
	parameter   *Holder // of AccumulateGrad: the module that has the parameter
	own         *Holder // the innermost module around the modules whose parameters it took
	up, down    *Holder // the same of the nearest functions before and behind it that have one
	leaf        bool    // AccumulateGrad
	saved       []*storage
}

// savedFinder finds out in which modules tensors were saved, by the graph's parameters. A function
// that takes a parameter of a module belongs to the module: so the instances of a class are told
// apart, which no stack trace does.
type savedFinder struct {
	*search
	result *Result
	graph  []savedNode
	at     map[uint64]int32 // of nodes, by address
}

// run sets Storage.Module of what the graph saved. It follows name.
func (f *savedFinder) run() {
	if f.storages.torch.found && f.collect() {
		f.modules()
	}
}

// modules gives functions and what they saved their modules.
func (f *savedFinder) modules() {
	for i := range f.graph {
		if n := &f.graph[i]; !n.leaf {
			n.own = f.ownOf(n)
		}
	}
	f.spread(func(n *savedNode) []int32 { return n.users }, func(n *savedNode) **Holder { return &n.up })
	f.spread(func(n *savedNode) []int32 { return n.next }, func(n *savedNode) **Holder { return &n.down })
	f.assign()
}

// collect lists the nodes of graphs and what they lead to. It reports whether there are any.
func (f *savedFinder) collect() bool {
	f.at = map[uint64]int32{}
	var addresses []uint64
	for i := range f.nodes {
		if n := &f.nodes[i]; n.flags&nodeCPP != 0 && len(addresses) < maxGraph && f.cpp.classOf(n.address).is(roleNode) {
			f.at[n.address] = int32(len(addresses))
			addresses = append(addresses, n.address)
		}
	}
	f.graph = make([]savedNode, len(addresses))
	for i, a := range addresses {
		if f.py.late() {
			return false
		}
		f.read(int32(i), a)
	}
	return len(addresses) > 0
}

// read lists what one node leads to.
func (f *savedFinder) read(i int32, a uint64) {
	n, c := &f.graph[i], f.cpp.classOf(a)
	if c == nil { // it changed meanwhile
		return
	}
	n.leaf = c.name == accumulateGrad
	var contexts []uint64
	visit := func(v uint64) {
		if k, is := f.at[v]; is && k != i {
			n.next = append(n.next, k)
			f.graph[k].users = append(f.graph[k].users, i)
			return
		}
		if f.cpp.classOf(v).is(roleTensor) {
			if st := f.storages.known[f.py.U64(v+f.storages.torch.storage)]; st != nil && st.result >= 0 {
				n.saved = append(n.saved, st)
			}
		} else if t := f.py.typeOf(v); t != nil && t.context {
			contexts = append(contexts, v)
		}
	}
	f.list(a, visit, func(at int32) { f.expandNode(at, a, c, 0) })
	for _, v := range contexts { // of a custom function
		f.list(v, visit, func(at int32) { f.expandSaved(at, v+obSize, (f.py.typeOf(v).basic-16)&^7, 0, 0) })
	}
	if n.leaf && len(n.saved) > 0 {
		n.parameter = f.moduleOfParameter(n.saved[0])
	}
}

// moduleOfParameter returns the module that has a parameter, of one that several have what is
// around them; nil: none was found.
func (f *savedFinder) moduleOfParameter(st *storage) (of *Holder) {
	s := &f.result.Storages[st.result]
	if s.Part != modelpart.Weight {
		return nil
	}
	for _, h := range append([]*Holder{s.Holder}, s.Also...) {
		if h != nil && h.parent != nil && h.step.Kind == StepChild {
			of = around(of, h.parent)
		}
	}
	return of
}

// nowhere is what two paths have in common that begin at different roots.
var nowhere = &Holder{root: &Root{}}

// around returns the innermost object on two paths; nil stands for no path.
func around(a, b *Holder) *Holder {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	for a != b && a != nil && b != nil {
		switch {
		case a.depth > b.depth:
			a = a.parent
		case b.depth > a.depth:
			b = b.parent
		default:
			a, b = a.parent, b.parent
		}
	}
	if a == nil || b == nil || a == nowhere {
		return nowhere
	}
	return a
}

// ownOf returns the module whose parameters a function took.
func (f *savedFinder) ownOf(n *savedNode) (of *Holder) {
	for _, k := range n.next {
		for range maxPassed {
			m := &f.graph[k]
			if m.leaf {
				of = around(of, m.parameter)
				break
			}
			if len(m.next) != 1 || len(m.saved) > 0 { // a view or a cast saves nothing
				break
			}
			k = m.next[0]
		}
	}
	return of
}

// spread gives each function what is around the modules of the nearest functions on one side that
// have one. Behind those it does not look: a residual connection leads through all of a model.
func (f *savedFinder) spread(back func(*savedNode) []int32, to func(*savedNode) **Holder) {
	distance := make([]int32, len(f.graph)) // 0: not reached
	var queue []int32
	for i := range f.graph {
		if f.graph[i].own != nil {
			distance[i] = 1
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		k := queue[0]
		queue = queue[1:]
		from := cmp.Or(f.graph[k].own, *to(&f.graph[k]))
		for _, m := range back(&f.graph[k]) {
			if distance[m] == 0 {
				distance[m] = distance[k] + 1
				queue = append(queue, m)
			}
			if x := &f.graph[m]; x.own == nil && distance[m] == distance[k]+1 {
				*to(x) = around(*to(x), from)
			}
		}
	}
}

// assign gives storages their modules: what is around those of all functions that saved it.
func (f *savedFinder) assign() {
	type found struct {
		module *Holder
		sure   bool
	}
	of := map[int]found{}
	for i := range f.graph {
		n := &f.graph[i]
		m := found{n.own, true}
		if m.module == nil && n.up != nil && n.down != nil {
			m = found{around(n.up, n.down), false}
		}
		if m.module == nil || n.leaf {
			continue
		}
		for _, st := range n.saved {
			if f.result.Storages[st.result].Part != modelpart.Saved {
				continue
			}
			x := m
			if other, known := of[st.result]; known {
				x = found{around(other.module, m.module), other.sure && m.sure}
			}
			of[st.result] = x
		}
	}
	names := map[*Holder]string{}
	for i, m := range of {
		if m.module.depth == 0 && m.module.root.Kind != RootLocal { // no object, but where paths begin
			continue
		}
		name, known := names[m.module]
		if !known {
			name = m.module.moduleName()
			names[m.module] = name
		}
		f.result.Storages[i].Module = Module{name, m.sure}
	}
}

// moduleName returns "model.blocks.3.mlp.0": the path without the function where it begins.
func (h *Holder) moduleName() string {
	var b strings.Builder
	switch r := h.root; {
	case r.Kind == RootLocal && h.named:
		b.WriteString(r.Name)
	case r.Kind == RootModule && r.Name == "__main__":
	default:
		r.begin(&b, h.named)
	}
	for _, s := range h.Steps() {
		if s.Kind != StepGraph {
			s.write(&b, false, h.named)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
