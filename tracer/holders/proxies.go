// SPDX-License-Identifier: Apache-2.0

package holders

// throughProxies names the handles that a library gives out instead of what it keeps itself: an
// object of Numba has a weak proxy of the memory, which a table of Numba keeps until the object is
// gone.
func (w *walk) throughProxies() {
	s := w.search
	var handles map[uint64]int32
	for k := range w.allocations {
		al := &w.allocations[k]
		if al.node < 0 || !s.fromLibrary(al.node) {
			continue
		}
		if handles == nil {
			handles = s.handles()
		}
		if p, is := handles[s.nodes[al.node].address]; is {
			al.node = p
		}
	}
}

// handles returns the cheapest proxies that a program has, by what the objects hold that they stand for.
func (s *search) handles() map[uint64]int32 {
	handles := map[uint64]int32{}
	var p int32
	enter := func(held uint64) {
		if old, is := handles[held]; !is || s.nodes[p].cost < s.nodes[old].cost {
			handles[held] = p
		}
	}
	for i := range int32(len(s.nodes)) {
		if s.py.late() {
			break
		}
		if a := s.handle(i); a != 0 {
			p = i
			s.eachHeld(a, enter)
		}
	}
	return handles
}

// handle returns what a node stands for if it is a weak proxy that an object of the same package has
// and a program leads to, or 0.
func (s *search) handle(i int32) uint64 {
	n := s.nodes[i]
	if n.flags&nodeCPP != 0 || n.from < 0 {
		return 0
	}
	t := s.py.typeOf(n.address)
	if t == nil || t.kind != kindWeak || !isProxy(t.name) || s.fromLibrary(i) {
		return 0
	}
	a := s.py.u64(n.address + weakObject)
	held, holder := s.py.typeOf(a), s.instance(n.from)
	if held == nil || holder == nil || s.py.moduleOf(held) == "" || s.py.moduleOf(held) != s.py.moduleOf(holder) {
		return 0
	}
	return a
}

// isProxy reports whether a type is that of weakref.proxy(): "weakproxy" until 3.10.
func isProxy(name string) bool { return name == "weakproxy" || name == "weakref.ProxyType" }

// eachHeld visits what an object holds itself or by its dictionary.
func (s *search) eachHeld(a uint64, visit func(held uint64)) {
	t := s.py.typeOf(a)
	s.nodes = append(s.nodes, node{address: a, from: -1})
	last := int32(len(s.nodes) - 1)
	s.visit = visit
	s.expandInstance(last, a, t, 0)
	if dict, _, _ := s.py.attributes(a, t); dict != 0 {
		s.py.eachItem(dict, func(_, value uint64) { visit(value) })
	}
	s.visit, s.nodes = nil, s.nodes[:last]
}

// fromLibrary reports whether a path begins in a module that is no part of the program.
func (s *search) fromLibrary(i int32) bool {
	for range maxDepth {
		from := s.nodes[i].from
		if from < 0 {
			return s.roots[-1-from].Kind == RootModule && s.nodes[i].cost >= costLibrary
		}
		i = from
	}
	return false
}

// instance returns the type of the object that a node is, or whose dictionary it is.
func (s *search) instance(i int32) *pyType {
	for i >= 0 && s.nodes[i].step == stepDict {
		i = s.nodes[i].from
	}
	if i < 0 {
		return nil
	}
	return s.py.typeOf(s.nodes[i].address)
}
