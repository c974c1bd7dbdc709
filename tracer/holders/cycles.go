// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"slices"
	"strings"
)

const (
	maxLoose      = 1 << 20 // unreachable objects that are looked at
	maxLooseEdges = 1 << 22
	maxCycle      = 4096 // objects that are searched for the way back
	maxClasses    = 4
)

// loose are the objects that the collector tracks and no root reaches.
type loose struct {
	objects []uint64
	known   map[uint64]bool     // whether another of them holds it
	holds   map[uint64][]uint64 // among them
}

// looseFinder enters objects that the collector tracks and no root reaches.
type looseFinder struct {
	*search
	native map[int]int32 // of roots: the objects that only C or C++ holds
}

// run enters what no root reaches: first what nothing in Python holds, such as tensors that
// C++ works with, then cycles. It returns how many objects there are.
func (f *looseFinder) run(objects []uint64) int {
	l := f.looseOf(objects)
	if f.untracked = f.misses(); f.untracked || f.holdStorage(l.objects) {
		f.enterAll(&l)
	}
	f.untracked = false
	return len(l.objects)
}

// rootLoose enters an object that only C or C++ holds. Who that is turns out later.
func (f *looseFinder) rootLoose(a uint64) {
	f.root(a, Root{}, stepRoot, 0, costCycle)
	if i, known := f.index.get(a); known && f.nodes[i].from == -int32(len(f.roots)) {
		f.native[len(f.roots)-1] = i
	}
}

func (f *looseFinder) looseOf(objects []uint64) loose {
	l := loose{known: map[uint64]bool{}, holds: map[uint64][]uint64{}}
	for _, a := range objects {
		if _, reached := f.index.get(a); !reached && len(l.objects) < maxLoose {
			if t := f.py.typeOf(a); t != nil && t.kind != kindType && t.kind != kindModule && t.kind != kindAtom && t.kind != kindWeak {
				l.objects = append(l.objects, a)
				l.known[a] = false
			}
		}
	}
	return l
}

func (f *looseFinder) enterAll(l *loose) {
	f.listEdges(l)
	for _, a := range l.objects {
		if !l.known[a] && !f.py.typeOf(a).storage {
			f.rootLoose(a)
		}
	}
	f.expandAll()
	slices.SortStableFunc(l.objects, func(a, b uint64) int { return f.rank(a) - f.rank(b) })
	for _, a := range l.objects {
		if _, reached := f.index.get(a); reached || f.stopped != "" || f.py.late() {
			continue
		}
		if classes := f.cycle(l, a); classes != "" {
			f.root(a, Root{Kind: RootCycle, Classes: classes}, stepRoot, 0, costCycle)
			f.expandAll()
		}
	}
}

// holdStorage reports whether one of these objects is a tensor or a storage that no root leads to.
func (f *looseFinder) holdStorage(objects []uint64) bool {
	for _, a := range objects {
		t := f.py.typeOf(a)
		if t.tensor {
			st := f.py.U64(f.py.U64(a+f.storages.torch.impl) + f.storages.torch.storage)
			if f.storages.known[st] == nil && f.cpp.classOf(st).is(roleStorage) {
				return true
			}
		}
		for o := uint64(16); t.storage && o < 40; o += 8 {
			if st := f.py.U64(a + o); f.storages.known[st] == nil && f.cpp.classOf(st).is(roleStorage) {
				return true
			}
		}
	}
	return false
}

// rank puts instances of classes first: a cycle is named after them.
func (f *looseFinder) rank(a uint64) int {
	switch t := f.py.typeOf(a); {
	case t == nil || t.tensor:
		return 3
	case t.kind == kindOther && t.heap():
		return 0
	case t.kind == kindOther:
		return 1
	}
	return 2
}

// listEdges finds out which loose objects hold which.
func (f *looseFinder) listEdges(l *loose) {
	edges := 0
	var from uint64
	visit := func(v uint64) {
		if _, is := l.known[v]; is && v != 0 && edges < maxLooseEdges {
			edges++
			l.known[v] = true
			l.holds[from] = append(l.holds[from], v)
		}
	}
	for _, from = range l.objects {
		if t := f.py.typeOf(from); t != nil && f.stopped == "" && !f.py.late() {
			f.list(from, visit, func(i int32) { f.expandPython(i, from, t, 0) })
		}
	}
}

// cycle returns the classes on the shortest way from an object back to itself, or "".
func (f *looseFinder) cycle(l *loose, a uint64) string {
	from := map[uint64]uint64{}
	queue := []uint64{a}
	for k := 0; k < len(queue) && len(queue) < maxCycle; k++ {
		for _, v := range l.holds[queue[k]] {
			if v == a {
				return f.classesOn(from, queue[k], a)
			}
			if _, seen := from[v]; !seen {
				from[v] = queue[k]
				queue = append(queue, v)
			}
		}
	}
	return ""
}

// classesOn names the classes from an object back to the begin of a cycle: "Node, Cache".
func (f *looseFinder) classesOn(from map[uint64]uint64, at, begin uint64) string {
	var own, builtin []string
	for range maxCycle {
		if t := f.py.typeOf(at); t != nil {
			name := t.class()
			if t.heap() && !slices.Contains(own, name) && len(own) < maxClasses {
				own = append(own, name)
			} else if !t.heap() && !slices.Contains(builtin, name) && len(builtin) < maxClasses {
				builtin = append(builtin, name)
			}
		}
		if at == begin {
			break
		}
		at = from[at]
	}
	slices.Reverse(own)
	if len(own) == 0 {
		own = builtin
	}
	return strings.Join(own, ", ")
}
