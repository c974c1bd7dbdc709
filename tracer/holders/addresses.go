// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"
)

const (
	maxRanges  = 1 << 20
	maxMissing = 1 << 20 // objects that hold an address and that the search leaves out
)

// sortedRanges returns the ranges that can be searched, in the order of their addresses, and how
// many it left out.
func sortedRanges(given []Range) (ranges []Range, left int) {
	for _, r := range given {
		if r.Address < 1<<16 || r.Bytes == 0 || r.Bytes > 1<<48 || r.Address > 1<<56 || len(ranges) >= maxRanges {
			left++
			continue
		}
		ranges = append(ranges, r)
	}
	slices.SortStableFunc(ranges, func(a, b Range) int { return cmp.Compare(a.Address, b.Address) })
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
	return st.bytes != 0 && (st.deviceType != deviceCPU || s.host || overlaps(s.ranges, st.data, st.bytes))
}

// unexplained returns the ranges that no storage has a part of.
func (s scope) unexplained(found []*storage) (ranges []Range) {
	var known []Range
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
			f.stop("stopped after the time limit")
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
