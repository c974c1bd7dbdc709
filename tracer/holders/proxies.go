// SPDX-License-Identifier: Apache-2.0

package holders

// proxyFinder finds the handles of a program that stand for what a library keeps.
type proxyFinder struct{ *search }

// run names the handles that a library gives out instead of what it keeps itself: an
// object of Numba has a weak proxy of the memory, which a table of Numba keeps until the object is
// gone.
func (f proxyFinder) run(allocations []allocation) {
	var handles map[uint64]int32
	for k := range allocations {
		al := &allocations[k]
		if al.node < 0 || !f.fromLibrary(al.node) {
			continue
		}
		if handles == nil {
			handles = f.handles()
		}
		if p, is := handles[f.nodes[al.node].address]; is {
			al.node = p
		}
	}
}

// handles returns the cheapest proxies that a program has, by what the objects hold that they stand
// for.
func (f proxyFinder) handles() map[uint64]int32 {
	handles := map[uint64]int32{}
	var p int32
	enter := func(held uint64) {
		if old, is := handles[held]; !is || f.nodes[p].cost < f.nodes[old].cost {
			handles[held] = p
		}
	}
	for i := range int32(len(f.nodes)) {
		if f.py.late() {
			break
		}
		if a := f.handle(i); a != 0 {
			p = i
			f.eachHeld(a, enter)
		}
	}
	return handles
}

// handle returns what a node stands for if it is a weak proxy that an object of the same package
// has and a program leads to, or 0.
func (f proxyFinder) handle(i int32) uint64 {
	n := f.nodes[i]
	if n.flags&nodeCPP != 0 || n.from < 0 {
		return 0
	}
	t := f.py.typeOf(n.address)
	if t == nil || t.kind != kindWeak || !isProxy(t.name) || f.fromLibrary(i) {
		return 0
	}
	a := f.py.U64(n.address + weakObject)
	held, holder := f.py.typeOf(a), f.instance(n.from)
	if held == nil || holder == nil || f.py.moduleOf(held) == "" || f.py.moduleOf(held) != f.py.moduleOf(holder) {
		return 0
	}
	return a
}

// isProxy reports whether a type is that of weakref.proxy(): "weakproxy" until 3.10.
func isProxy(name string) bool { return name == "weakproxy" || name == "weakref.ProxyType" }

// eachHeld visits what an object holds itself or by its dictionary.
func (f proxyFinder) eachHeld(a uint64, visit func(held uint64)) {
	t := f.py.typeOf(a)
	f.list(a, visit, func(i int32) { f.expandInstance(i, a, t, 0) })
	if dict, _, _ := f.py.attributes(a, t); dict != 0 {
		f.py.eachItem(dict, func(_, value uint64) { visit(value) })
	}
}

// fromLibrary reports whether a path begins in a module that is no part of the program.
func (f proxyFinder) fromLibrary(i int32) bool {
	for range maxDepth {
		from := f.nodes[i].from
		if from < 0 {
			return f.roots[-1-from].Kind == RootModule && f.nodes[i].cost >= costLibrary
		}
		i = from
	}
	return false
}

// instance returns the type of the object that a node is, or whose dictionary it is.
func (f proxyFinder) instance(i int32) *pyType {
	for i >= 0 && f.nodes[i].step == stepDict {
		i = f.nodes[i].from
	}
	if i < 0 {
		return nil
	}
	return f.py.typeOf(f.nodes[i].address)
}
