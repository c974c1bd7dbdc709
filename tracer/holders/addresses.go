// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"slices"
)

const (
	maxRanges    = 1 << 20
	maxBack      = 1 << 10 // bytes from the begin of a Python object to an address that it holds
	maxMissing   = 1 << 20 // objects that hold an address and that the search leaves out
	maxAtomRoots = 1 << 16
)

// Range is memory that the caller knows from the books of the driver or of an allocator.
type Range struct {
	Address, Bytes uint64
	Device         int // CUDA's ordinal in the process
}

func (r Range) end() uint64 { return r.Address + r.Bytes }

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
	slices.SortStableFunc(ranges, func(a, b Range) int { return compare(a.Address, b.Address) })
	n := len(ranges)
	ranges = slices.CompactFunc(ranges, func(a, b Range) bool { return a.Address == b.Address })
	return ranges, left + n - len(ranges)
}

// overlaps reports whether bytes at an address share memory with one of sorted ranges.
func overlaps(ranges []Range, address, bytes uint64) bool {
	i, exact := slices.BinarySearchFunc(ranges, address, func(r Range, a uint64) int { return compare(r.Address, a) })
	return exact || i > 0 && address < ranges[i-1].end() || i < len(ranges) && ranges[i].Address-address < bytes
}

// unexplained returns the ranges that no storage has a part of.
func (w *walk) unexplained() (ranges []Range) {
	var known []Range
	for _, st := range w.search.found {
		if st.bytes > 0 && st.data != 0 {
			known = append(known, Range{Address: st.data, Bytes: st.bytes})
		}
	}
	known, _ = sortedRanges(known)
	for _, r := range w.ranges {
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
	result int      // index of its Storage
}

// findAllocations searches the memory for the addresses of allocations that no storage explains.
func (w *walk) findAllocations() error {
	ranges := w.unexplained()
	if len(ranges) == 0 {
		return nil
	}
	s := w.search
	set := newWanted(len(ranges))
	for i, r := range ranges {
		set.add(r.Address, int32(i))
		set.addInt(r.Address, int32(i))
		w.allocations = append(w.allocations, allocation{Range: r, node: -1})
	}
	set.addInside(ranges)
	if err := w.sweep(set.look); err != nil {
		return err
	}
	w.problem(set.left, "places that hold the address of an allocation and that were not looked at")
	s.missing, w.hits = map[uint64]bool{}, set.hits
	for _, h := range set.hits {
		if s.py.late() {
			s.stop("stopped after the time limit")
			break
		}
		w.consider(h)
	}
	w.problem(w.left, "objects that hold the address of an allocation and whose paths were not searched")
	w.enterMissing()
	return nil
}

// consider takes the Python object that a hit lies in as a holder, if there is one.
func (w *walk) consider(h hit) {
	s, al := w.search, &w.allocations[h.item]
	a := s.objectAt(h)
	if a == 0 {
		return
	}
	if i, known := s.index.get(a); known {
		w.hold(al, i, h)
	} else if h.form != formInside && len(s.missing) >= maxMissing {
		w.left++
	} else if h.form != formInside {
		s.missing[a] = true
		al.atoms = append(al.atoms, a)
		if al.place.at == 0 {
			al.place = h
		}
	}
}

// hold makes a node the holder of an allocation if it is better than the one so far: the address
// itself before a pointer inside, then the cheaper path.
func (w *walk) hold(al *allocation, i int32, h hit) {
	inside, nodes := h.form == formInside, w.search.nodes
	if al.node >= 0 && (inside && !al.inside || inside == al.inside && nodes[al.node].cost <= nodes[i].cost) {
		return
	}
	al.node, al.inside, al.place = i, inside, h
}

// isLive reports whether an object's count of references can be one. In a free block of Python's
// allocator a pointer to the next one is in its place.
func (py *python) isLive(a uint64) bool {
	n := py.u64(a)
	return uint32(n) != 0 && n>>32&0xffff == 0
}

// plain reports whether objects of a type can hold an address as it is. Containers do not: a word of
// a set or of a dictionary can be the hash of an integer.
func (t *pyType) plain() bool {
	return t.kind == kindOther || t.kind == kindPlain || t.kind == kindAtom && t.flags&flagInt == 0
}

const intDigits = 24 // of a Python integer, behind its size

// isTwoDigits reports whether a Python integer is positive and has two digits.
func (py *python) isTwoDigits(a uint64) bool {
	if py.l.minor >= 12 {
		return py.u64(a+16) == 2<<3 // the lowest bits are the sign
	}
	return py.u64(a+16) == 2
}

// atomRoot is a variable of a frame whose value holds nothing that the search follows.
type atomRoot struct {
	address uint64
	root    Root
	step    StepKind
	cost    int
}

// enterMissing searches the paths to objects that hold an address and that the search leaves out:
// integers, and what only dictionaries and tuples of them hold.
func (w *walk) enterMissing() {
	s := w.search
	if len(s.missing) == 0 || s.stopped != "" {
		return
	}
	s.untracked, s.onlyNew = true, int32(len(s.nodes))
	for _, r := range s.atomRoots {
		if s.missing[r.address] {
			s.root(r.address, r.root, r.step, 0, r.cost)
		}
	}
	for i := range s.onlyNew {
		if s.nodes[i].flags&nodeDone != 0 && s.stopped == "" && !s.py.late() {
			s.expand(i)
		}
	}
	s.run()
	s.untracked, s.onlyNew = false, 0
	w.takeMissing()
}

// takeMissing gives allocations the holders that have a path by now.
func (w *walk) takeMissing() {
	for k := range w.allocations {
		al := &w.allocations[k]
		for _, a := range al.atoms {
			if i, known := w.search.index.get(a); known {
				w.hold(al, i, hit{at: al.place.at, item: int32(k)})
			}
		}
	}
}

// misses reports whether an object that holds an address has no path yet.
func (s *search) misses() bool {
	for a := range s.missing {
		if _, known := s.index.get(a); !known {
			return true
		}
	}
	return false
}

// nameAllocations adds the allocations to the result. Those that a storage explains after all are left out.
func (w *walk) nameAllocations(n *namer) {
	w.takeMissing()
	w.throughProxies()
	left := w.unexplained()
	for k := range w.allocations {
		al := &w.allocations[k]
		al.result = -1
		if _, is := slices.BinarySearchFunc(left, al.Address, func(r Range, a uint64) int { return compare(r.Address, a) }); !is {
			continue
		}
		r := Storage{
			Address: al.Address, Bytes: al.Bytes, DeviceType: deviceCUDA, Device: al.Device, Allocation: true, Inside: al.inside,
			Holder: n.native(al.native),
		}
		if al.node >= 0 {
			r.Holder, r.Container = n.objectHolder(al.node, al.inside), n.container(al.node)
		}
		al.result = len(w.result.Storages)
		w.result.Storages = append(w.result.Storages, r)
	}
}

// verifyAllocations reads the words that hold the addresses again.
func (w *walk) verifyAllocations(now *Copy) {
	for _, al := range w.allocations {
		if al.result >= 0 && al.place.at != 0 {
			w.result.Storages[al.result].InMotion = now.u64(al.place.at) != w.copy.u64(al.place.at)
		}
	}
}
