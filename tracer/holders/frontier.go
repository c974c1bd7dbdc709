// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

const (
	maxDoubtful  = 1 << 14
	maxAtomRoots = 1 << 16
)

// frontier decides which objects enter the search. Most of what holds nothing stays outside.
type frontier struct {
	graph
	heap
	doubtful  []int32         // nodes that changed while they were copied
	untracked bool            // enter dictionaries and tuples that the collector does not track
	missing   map[uint64]bool // objects that are entered though they hold nothing
	onlyNew   int32           // nodes before it get no further ways; 0: all do
	atoms     bool            // keep variables that hold nothing in atomRoots
	atomRoots []atomRoot
	visit     func(v uint64) // instead of entering, while references are only listed
}

// atomRoot is a variable of a frame whose value holds nothing that the search follows.
type atomRoot struct {
	address uint64
	root    Root
	step    StepKind
	cost    int
}

// pushPython enters a Python object that node from holds.
func (f *frontier) pushPython(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if !peek.Pointer(a) {
		return
	}
	if f.visit != nil {
		f.visit(a)
		return
	}
	if i, known := f.index.get(a); known {
		if i >= f.onlyNew {
			f.again(i, from, step, aux, cost)
		}
		return
	}
	t := f.py.typeOf(a)
	if t == nil || (t.kind == kindAtom || t.kind == kindStr) && !f.missing[a] {
		return
	}
	if !f.untracked && t.exact && (t.kind == kindDict || t.kind == kindTuple) && from >= 0 && f.py.U64(a-gcHead) == 0 {
		return // the collector does not track it: it holds nothing that is tracked
	}
	var flags uint8
	if t.tensor {
		flags = nodeTensor
	}
	f.add(node{address: a, aux: aux, from: from, step: step, flags: flags}, cost)
}

// pushCPP enters a C++ object.
func (f *frontier) pushCPP(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if f.visit != nil {
		f.visit(a)
		return
	}
	if i, known := f.index.get(a); known {
		f.again(i, from, step, aux, cost)
		return
	}
	f.add(node{address: a, aux: aux, from: from, step: step, flags: nodeCPP}, cost)
}

// auxName returns the name that a step has.
func (f *frontier) auxName(aux uint64) string {
	if aux&1 == 1 {
		if i := aux >> 1; i < uint64(len(f.names)) {
			return f.names[i]
		}
		return ""
	}
	return f.py.str(aux)
}

// root enters an object that nothing needs to hold.
func (f *frontier) root(a uint64, r Root, step StepKind, aux uint64, cost int) {
	if len(f.roots) >= 1<<24 {
		return
	}
	if f.atoms && len(f.atomRoots) < maxAtomRoots {
		if t := f.py.typeOf(a); t != nil && t.kind == kindAtom {
			f.atomRoots = append(f.atomRoots, atomRoot{a, r, step, cost})
		}
	}
	f.roots = append(f.roots, r)
	f.pushPython(a, -int32(len(f.roots)), step, aux, cost)
}

// doubt notes a container whose content makes no sense.
func (f *frontier) doubt(i int32) {
	if n := len(f.doubtful); f.visit == nil && n < maxDoubtful && (n == 0 || f.doubtful[n-1] != i) {
		f.doubtful = append(f.doubtful, i)
	}
}

// misses reports whether an object that is entered though it holds nothing has no path yet.
func (f *frontier) misses() bool {
	for a := range f.missing {
		if _, known := f.index.get(a); !known {
			return true
		}
	}
	return false
}
