// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

const (
	gcHead     = 16 // in front of an object: the next and the previous one, with flags in the lowest bits
	maxGCHeads = 16
)

// collected returns the objects that the garbage collector tracks, at most limit, and how many of
// its lists could only be read in part. The heads of the lists are found by themselves: their
// neighbours point back to them.
func (py *python) collected(limit int) (objects []uint64, broken int) {
	for _, interp := range py.interps {
		for _, head := range py.gcHeads(interp) {
			var whole bool
			objects, whole = py.follow(objects, head, limit)
			if !whole {
				broken++
			}
		}
	}
	return objects, broken
}

// gcHeads searches the state of an interpreter. In 3.8 the collector belongs to the runtime. Some
// builds have the heads at addresses that are a multiple of 4 only.
func (py *python) gcHeads(interp uint64) (heads []uint64) {
	from, bytes := interp, uint64(8*interpreterMax)
	if py.l.gcState != 0 {
		from, bytes = interp+py.l.gcState, 512
	} else if py.l.minor == 8 {
		from, bytes = py.runtime, 4096
	}
	for head := from; head < from+bytes && len(heads) < maxGCHeads; head += 4 {
		if py.isHead(head) {
			heads = append(heads, head)
		}
	}
	if len(heads) == 0 && py.l.minor == 9 && py.version == "3.8 or 3.9" {
		py.l.minor = 8
		heads = py.gcHeads(interp)
	}
	return heads
}

// automatic reads whether the collector is enabled. The number is in front of the first generation,
// whose threshold is in the hundreds: enabled, debug, and 4 bytes of padding where they are needed.
func (py *python) automatic() Automatic {
	const generation, threshold = 24, 16
	if len(py.interps) == 0 {
		return AutomaticUnknown
	}
	for _, head := range py.gcHeads(py.interps[0]) {
		for k := range uint64(3) {
			first, enabled := head-k*generation, uint64(12)
			if head%8 != 0 {
				enabled = 8
			}
			if n := py.U32(first + threshold); n < 100 || n > 1<<20 || py.U32(first+generation+threshold) > 1000 {
				continue
			}
			switch py.U32(first - enabled) {
			case 0:
				return AutomaticOff
			case 1:
				return AutomaticOn
			}
		}
	}
	return AutomaticUnknown
}

func (py *python) isHead(head uint64) bool {
	next, previous := py.U64(head)&^3, py.U64(head+8)&^3
	if !peek.Pointer(next) || !peek.Pointer(previous) || next == head&^3 || previous == head&^3 {
		return false
	}
	// One neighbour is enough: the youngest object changes while pages are copied, one after the
	// other.
	first := py.U64(next+8)&^3 == head&^3 && py.typeOf(next+gcHead) != nil
	last := py.U64(previous)&^3 == head&^3 && py.typeOf(previous+gcHead) != nil
	// An object in a list has neighbours, too: the head is none.
	return (first || last) && py.typeOf(head+gcHead) == nil
}

// follow appends the objects of a list. Where it breaks, the rest is read from its end.
func (py *python) follow(objects []uint64, head uint64, limit int) ([]uint64, bool) {
	begin := len(objects)
	objects, whole := py.followTo(objects, head, 0, limit, nil)
	if whole || len(objects) >= limit {
		return objects, whole
	}
	seen := make(map[uint64]struct{}, len(objects)-begin)
	for _, a := range objects[begin:] {
		seen[a] = struct{}{}
	}
	objects, _ = py.followTo(objects, head, 8, limit, seen)
	return objects, false
}

// followTo goes in one direction until the list ends, an object is no object, or one was seen.
func (py *python) followTo(objects []uint64, head, direction uint64, limit int, seen map[uint64]struct{}) ([]uint64, bool) {
	begin := len(objects)
	mark, power := uint64(0), 1 // Brent: a list that runs in circles
	for p := py.U64(head+direction) &^ 3; p != head&^3; p = py.U64(p+direction) &^ 3 {
		if !peek.Pointer(p) || len(objects) >= limit || p == mark || py.typeOf(p+gcHead) == nil {
			return objects, false
		}
		if len(objects)%1024 == 0 && py.late() {
			return objects, false
		}
		if _, again := seen[p+gcHead]; again {
			return objects, false
		}
		objects = append(objects, p+gcHead)
		if n := len(objects) - begin; n == power {
			mark, power = p, 2*power
		}
	}
	return objects, true
}

// Automatic is whether Python's garbage collector runs by itself: cycles stay where it does not.
type Automatic uint8

const (
	AutomaticUnknown Automatic = iota
	AutomaticOn
	AutomaticOff
)
