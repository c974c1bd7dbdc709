// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
)

const (
	maxRanges  = 1 << 20
	maxMissing = 1 << 20 // objects that hold an address and that the search leaves out
)

// sortedRanges returns the ranges that can be searched, in the order of their addresses, and how
// many it left out.
func sortedRanges(given []Range) (ranges []Range, left int) {
	ranges = make([]Range, 0, min(len(given), maxRanges))
	for _, r := range given {
		if r.Address < 1<<16 || r.Bytes == 0 || r.Bytes > 1<<48 || r.Address > 1<<56 || len(ranges) >= maxRanges {
			left++
			continue
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, func(a, b Range) int {
		if a.Address != b.Address {
			return cmp.Compare(a.Address, b.Address)
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Device, b.Device))
	})
	n := len(ranges)
	ranges = slices.CompactFunc(ranges, func(a, b Range) bool { return a.Address == b.Address })
	return ranges, left + n - len(ranges)
}

// overlaps reports whether bytes at an address share memory with one of sorted ranges.
func overlaps(ranges []Range, address, bytes uint64) bool {
	i, exact := slices.BinarySearchFunc(ranges, address, func(r Range, a uint64) int { return cmp.Compare(r.Address, a) })
	return exact || i > 0 && address < ranges[i-1].end() || i < len(ranges) && ranges[i].Address-address < bytes
}

// scope is what a walk reports.
type scope struct {
	host   bool    // also storages in host memory
	ranges []Range // allocations that the caller knows, sorted
}

// wants reports whether a storage is a part of the result.
func (s scope) wants(st *storage) bool {
	return st.bytes != 0 && st.data != 0 && (st.deviceType != deviceCPU || s.host || overlaps(s.ranges, st.data, st.bytes))
}

// unexplained returns the ranges that no storage has a part of.
func (s scope) unexplained(found []*storage) (ranges []Range) {
	known := make([]Range, 0, len(found))
	for _, st := range found {
		if st.bytes > 0 && st.data != 0 {
			known = append(known, Range{Address: st.data, Bytes: st.bytes})
		}
	}
	known, _ = sortedRanges(known)
	for _, r := range s.ranges {
		if !overlaps(known, r.Address, r.Bytes) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// allocation is a range that no storage explains, and who holds it.
type allocation struct {
	Range
	node   int32    // with the cheapest path, or -1
	inside bool     // it only has a pointer into the range
	place  hit      // where the address was found
	atoms  []uint64 // Python objects that hold the address and that no path leads to so far
	native string   // what holds it where no path leads to it, or ""
	static bool     // likewise: it is a variable of a library
	result int      // index of its Storage
}

// allocationFinder finds the objects that hold the addresses of allocations.
type allocationFinder struct {
	*search
	scope
	sweeper sweeper
	result  *Result
	list    []allocation
	hits    []hit // of the addresses
	left    int   // objects that hold an address and were not searched
}

// run searches the memory for the addresses of allocations that no storage explains.
func (f *allocationFinder) run() error {
	ranges := f.unexplained(f.storages.found)
	if len(ranges) == 0 {
		return nil
	}
	set := newWanted(len(ranges))
	for i, r := range ranges {
		set.add(r.Address, int32(i))
		set.addInt(r.Address, int32(i))
		f.list = append(f.list, allocation{Range: r, node: -1})
	}
	set.addInside(ranges)
	if err := f.sweeper.sweep(set.look); err != nil {
		return err
	}
	f.result.problem(set.left, "places that hold the address of an allocation and that were not looked at")
	f.missing, f.hits = map[uint64]bool{}, set.hits
	for _, h := range set.hits {
		if f.py.late() {
			f.stop(f.py.clock.text())
			break
		}
		f.consider(h)
	}
	f.result.problem(f.left, "objects that hold the address of an allocation and whose paths were not searched")
	f.enterMissing()
	return nil
}

// consider takes the Python object that a hit lies in as a holder, if there is one.
func (f *allocationFinder) consider(h hit) {
	al := &f.list[h.item]
	a := f.objectAt(h)
	if a == 0 {
		return
	}
	if i, known := f.index.get(a); known {
		f.hold(al, i, h)
	} else if h.form != formInside && len(f.missing) >= maxMissing {
		f.left++
	} else if h.form != formInside {
		f.missing[a] = true
		al.atoms = append(al.atoms, a)
		if al.place.at == 0 {
			al.place = h
		}
	}
}

// hold makes a node the holder of an allocation if it is better than the one so far: the address
// itself before a pointer inside, then the cheaper path.
func (f *allocationFinder) hold(al *allocation, i int32, h hit) {
	inside, nodes := h.form == formInside, f.nodes
	if al.node >= 0 && (inside && !al.inside || inside == al.inside && nodes[al.node].cost <= nodes[i].cost) {
		return
	}
	al.node, al.inside, al.place = i, inside, h
}

// enterMissing searches the paths to objects that hold an address and that the search leaves out:
// integers, and what only dictionaries and tuples of them hold.
func (f *allocationFinder) enterMissing() {
	if len(f.missing) == 0 || f.stopped != "" {
		return
	}
	f.untracked, f.onlyNew = true, int32(len(f.nodes))
	for _, r := range f.atomRoots {
		if f.missing[r.address] {
			f.root(r.address, r.root, r.step, 0, r.cost)
		}
	}
	for i := range f.onlyNew {
		if f.nodes[i].flags&nodeDone != 0 && f.stopped == "" && !f.py.late() {
			f.expand(i)
		}
	}
	f.expandAll()
	f.untracked, f.onlyNew = false, 0
	f.takeMissing()
}

// takeMissing gives allocations the holders that have a path by now.
func (f *allocationFinder) takeMissing() {
	for k := range f.list {
		al := &f.list[k]
		for _, a := range al.atoms {
			if i, known := f.index.get(a); known {
				f.hold(al, i, hit{at: al.place.at, item: int32(k)})
			}
		}
	}
}

// objectHolder returns the path to an object that holds the address of an allocation, with the
// object's class: "cache['x'].gpu_data (numba DeviceNDArray)". What objects of a library consist of
// is cut off behind the first attribute.
func (n *namer) objectHolder(i int32, inside bool) *Holder {
	chain := []int32{i} // from the object back to the last step that is no attribute
	for k := i; len(chain) < maxDepth && n.isField(k); {
		if k = n.nodes[k].from; k < 0 {
			break
		}
		chain = append(chain, k)
	}
	class, end := "", i
	for k := len(chain) - 1; k >= 0; k-- {
		if class = n.libraryClass(chain[k]); class != "" {
			end = n.firstField(chain[:k+1])
			break
		}
	}
	if t := n.py.typeOf(n.nodes[i].address); class == "" && t != nil {
		class = t.class()
	}
	switch {
	case inside && class == "":
		class = "pointer inside"
	case inside:
		class += ", pointer inside"
	}
	return n.withObject(n.holder(end), class)
}

// withObject returns the same path with the class of the object behind it.
func (n *namer) withObject(h *Holder, class string) *Holder {
	l := link{root: h.root, parent: h, object: class}
	if n.known[l] == nil {
		with := *h
		with.object = class
		n.known[l] = &with
	}
	return n.known[l]
}

// isField reports whether a node is a part of what holds it: an attribute or a field.
func (n *namer) isField(i int32) bool {
	switch n.nodes[i].step {
	case StepAttr, StepField, stepDict, stepThrough:
		return n.nodes[i].from >= 0
	}
	return false
}

// firstField returns the node of the first attribute of a chain, which is from its end.
func (n *namer) firstField(chain []int32) int32 {
	for k := len(chain) - 2; k >= 0; k-- {
		if step := n.nodes[chain[k]].step; step == StepAttr || step == StepField {
			return chain[k]
		}
	}
	return chain[0]
}

// libraryClass returns "numba DeviceNDArray" for an instance of a class of a library, or "".
func (n *namer) libraryClass(i int32) string {
	to := n.nodes[i]
	t := n.py.typeOf(to.address)
	if t == nil || to.flags&nodeCPP != 0 || t.kind != kindOther {
		return ""
	}
	module := n.py.moduleOf(t)
	if !n.libraries[module] {
		return ""
	}
	if n.hideNames {
		return t.class()
	}
	return cut60(untrusted.Clean(module)) + " " + t.class()
}

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
