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

// enterLoose enters what no root reaches: first what nothing in Python holds, such as tensors that
// C++ works with, then cycles. It returns how many objects there are.
func (s *search) enterLoose(objects []uint64) int {
	l := s.looseOf(objects)
	if s.untracked = s.misses(); s.untracked || s.holdStorage(l.objects) {
		s.enterAll(&l)
	}
	s.untracked = false
	return len(l.objects)
}

// rootLoose enters an object that only C or C++ holds. Who that is turns out later.
func (s *search) rootLoose(a uint64) {
	s.root(a, Root{}, stepRoot, 0, costCycle)
	if i, known := s.index.get(a); known && s.nodes[i].from == -int32(len(s.roots)) {
		s.looseNodes[len(s.roots)-1] = i
	}
}

func (s *search) looseOf(objects []uint64) loose {
	l := loose{known: map[uint64]bool{}, holds: map[uint64][]uint64{}}
	for _, a := range objects {
		if _, reached := s.index.get(a); !reached && len(l.objects) < maxLoose {
			if t := s.py.typeOf(a); t != nil && t.kind != kindType && t.kind != kindModule && t.kind != kindAtom && t.kind != kindWeak {
				l.objects = append(l.objects, a)
				l.known[a] = false
			}
		}
	}
	return l
}

func (s *search) enterAll(l *loose) {
	s.listEdges(l)
	for _, a := range l.objects {
		if !l.known[a] && !s.py.typeOf(a).storage {
			s.rootLoose(a)
		}
	}
	s.run()
	slices.SortStableFunc(l.objects, func(a, b uint64) int { return s.rank(a) - s.rank(b) })
	for _, a := range l.objects {
		if _, reached := s.index.get(a); reached || s.stopped != "" || s.py.late() {
			continue
		}
		if classes := s.cycle(l, a); classes != "" {
			s.root(a, Root{Kind: RootCycle, Classes: classes}, stepRoot, 0, costCycle)
			s.run()
		}
	}
}

// holdStorage reports whether one of these objects is a tensor or a storage that no root leads to.
func (s *search) holdStorage(objects []uint64) bool {
	for _, a := range objects {
		t := s.py.typeOf(a)
		if t.tensor {
			st := s.py.u64(s.py.u64(a+s.torch.impl) + s.torch.storage)
			if s.storages[st] == nil && s.cpp.classOf(st).is(roleStorage) {
				return true
			}
		}
		for o := uint64(16); t.storage && o < 40; o += 8 {
			if st := s.py.u64(a + o); s.storages[st] == nil && s.cpp.classOf(st).is(roleStorage) {
				return true
			}
		}
	}
	return false
}

// rank puts instances of classes first: a cycle is named after them.
func (s *search) rank(a uint64) int {
	switch t := s.py.typeOf(a); {
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
func (s *search) listEdges(l *loose) {
	edges := 0
	var from uint64
	s.visit = func(v uint64) {
		if _, is := l.known[v]; is && v != 0 && edges < maxLooseEdges {
			edges++
			l.known[v] = true
			l.holds[from] = append(l.holds[from], v)
		}
	}
	defer func() { s.visit = nil }()
	s.nodes = append(s.nodes, node{})
	last := int32(len(s.nodes) - 1)
	for _, a := range l.objects {
		t := s.py.typeOf(a)
		if t == nil || s.stopped != "" || s.py.late() {
			continue
		}
		from = a
		s.nodes[last] = node{address: a, from: -1}
		s.expandPython(last, a, t, 0)
	}
	s.nodes = s.nodes[:last]
}

// cycle returns the classes on the shortest way from an object back to itself, or "".
func (s *search) cycle(l *loose, a uint64) string {
	from := map[uint64]uint64{}
	queue := []uint64{a}
	for k := 0; k < len(queue) && len(queue) < maxCycle; k++ {
		for _, v := range l.holds[queue[k]] {
			if v == a {
				return s.classesOn(from, queue[k], a)
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
func (s *search) classesOn(from map[uint64]uint64, at, begin uint64) string {
	var own, builtin []string
	for range maxCycle {
		if t := s.py.typeOf(at); t != nil {
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
