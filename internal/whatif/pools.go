// SPDX-License-Identifier: Apache-2.0

package whatif

import "maps"

// numbers gives things small numbers, in the order in which they come.
type numbers struct {
	of   map[uint64]uint32
	list []uint64
}

// newNumbers gives 0 the number 0.
func newNumbers() numbers { return numbers{map[uint64]uint32{0: 0}, []uint64{0}} }

func (n *numbers) get(x uint64) uint32 {
	k, ok := n.of[x]
	if !ok {
		k = uint32(len(n.list))
		n.of[x] = k
		n.list = append(n.list, x)
	}
	return k
}

// pools numbers private pools. Events name them by their address, readings by an id.
type pools struct {
	of       map[uint64]uint32 // address → number
	ids      map[[2]uint64]uint32
	parent   []uint32 // of pools that turned out to be one
	released map[uint32]bool
	read     map[uint32]bool // of the reading at the start
	linked   map[uint32]bool // of these, known by their address as well
}

func newPools() pools {
	return pools{of: map[uint64]uint32{}, ids: map[[2]uint64]uint32{}, parent: []uint32{0}, released: map[uint32]bool{}, read: map[uint32]bool{}, linked: map[uint32]bool{}}
}

func (p *pools) find(n uint32) uint32 {
	for p.parent[n] != n {
		p.parent[n] = p.parent[p.parent[n]]
		n = p.parent[n]
	}
	return n
}

func (p *pools) next() uint32 {
	n := uint32(len(p.parent))
	p.parent = append(p.parent, n)
	return n
}

// number returns the number of the pool at an address, 0 for the default one, whose block lies in
// memory of another number.
func (p *pools) number(at uint64, inside uint32) uint32 {
	if at == 0 {
		return 0
	}
	n, ok := p.of[at]
	if ok && p.released[n] && inside != n { // it has ended, and another one has its place
		ok = false
	}
	if !ok {
		n = p.next()
		p.of[at] = n
	}
	if inside != 0 && p.read[inside] {
		p.linked[inside] = true
	}
	if a, b := p.find(n), p.find(inside); inside != 0 && a != b {
		p.parent[max(a, b)] = min(a, b)
	}
	return n
}

// byID returns the number of a pool of a reading.
func (p *pools) byID(id [2]uint64) uint32 {
	if id == [2]uint64{} {
		return 0
	}
	n, ok := p.ids[id]
	if !ok {
		n = p.next()
		p.ids[id] = n
		p.read[n] = true
	}
	return n
}

// release notes that nobody uses a pool any more, and returns whether that is new.
func (p *pools) release(n uint32) bool {
	before := p.released[n]
	p.released[n] = true
	return !before
}

// ambiguous returns how many pools of the start may be the same as later ones: those whose address
// is unknown, if there are pools whose id is unknown.
func (p *pools) ambiguous() uint64 {
	unlinked := uint64(len(p.read) - len(p.linked))
	for n := range maps.Values(p.of) {
		if !p.read[p.find(n)] {
			return unlinked
		}
	}
	return 0
}
