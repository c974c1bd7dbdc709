// SPDX-License-Identifier: Apache-2.0

package holders

import "fmt"

// Costs of steps, in tenths. The cheapest path names a storage.
const (
	costThrough = 1
	costModules = 1
	costChild   = 2
	costAttr    = 20
	costKey     = 20
	costItem    = 30
	costBound   = 30
	costField   = 80
	costEntry   = 200
	costDirect  = 40 // a tensor that is itself a variable: often left over from a loop
	costGlobals = 300
	costGrad    = 20
	costGraph   = 350 // dearer than a program's variables, cheaper than what libraries keep
	costNext    = 0   // a graph can have more nodes than there are costs
	costSaved   = 10
	costWrapped = 2500 // what pybind11 wraps
	costScript  = 100  // the same, of a known class
	costError   = 2500 // frames of a traceback
	maxCost     = 1 << 14
	costCycle   = 1 << 13
)

const (
	nodeDone    = 1 << iota // its cheapest path is known
	nodeCPP                 // a C++ object
	nodeTensor              // a Python tensor
	nodeWrapped             // memory that pybind11 wraps, of no known class
)

// node is an object that was found. Its aux is what the step needs for its name: the address of a
// string object or an index into names, or a number.
type node struct {
	address uint64
	aux     uint64
	from    int32 // the node that holds it, or -1-i for root i
	cost    uint16
	step    StepKind
	flags   uint8
}

// edge is a further way to a tensor.
type edge struct {
	aux  uint64
	from int32
	step StepKind
}

const (
	maxDoubtful = 1 << 14
	maxAlso     = 4
	workUnit    = 64 // references per object, at most, in all
)

// table maps addresses to nodes: open addressing, at most half full. It keeps the nodes' numbers
// from 1 on; their addresses are in the nodes.
type table struct {
	slots []int32
	nodes *[]node
}

// slot returns where an address is, or where it can be put.
func (t *table) slot(address uint64) int {
	mask := len(t.slots) - 1
	i := int(address*0x9e3779b97f4a7c15>>20) & mask
	for n := t.slots[i]; n != 0 && (*t.nodes)[n-1].address != address; n = t.slots[i] {
		i = (i + 1) & mask
	}
	return i
}

func (t *table) get(address uint64) (int32, bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	n := t.slots[t.slot(address)]
	return n - 1, n != 0
}

// put enters a node that the table does not have.
func (t *table) put(i int32) {
	if 2*int(i) >= len(t.slots) {
		t.resize(max(1<<12, 2*len(t.slots)), i)
	}
	t.slots[t.slot((*t.nodes)[i].address)] = i + 1
}

// resize makes the table larger and enters the nodes before one.
func (t *table) resize(size int, before int32) {
	t.slots = make([]int32, size)
	for i := range before {
		t.slots[t.slot((*t.nodes)[i].address)] = i + 1
	}
}

// reserve makes room for about as many objects as the collector tracks.
func (s *search) reserve(objects int) {
	n := min(objects+objects/16, s.maxNodes, 1<<24)
	s.nodes = make([]node, 0, n)
	size := 1 << 12
	for size < 2*n {
		size *= 2
	}
	s.index.resize(size, 0)
}

// name returns an aux for a name that is no string object. It is odd, as addresses never are.
func (s *search) name(text string) uint64 {
	id, known := s.nameIDs[text]
	if !known {
		if len(s.names) > 1<<20 {
			return 1
		}
		id = uint64(len(s.names))<<1 | 1
		s.names, s.nameIDs[text] = append(s.names, text), id
	}
	return id
}

func (s *search) add(n node, cost int) {
	if len(s.nodes) >= s.maxNodes {
		s.stop(fmt.Sprintf("stopped after %d objects", s.maxNodes))
		return
	}
	n.cost = uint16(min(cost, maxCost))
	i := int32(len(s.nodes))
	s.nodes = append(s.nodes, n)
	s.index.put(i)
	s.enqueue(i, int(n.cost))
}

func (s *search) enqueue(i int32, cost int) {
	s.queue[cost] = append(s.queue[cost], i)
	s.low = min(s.low, cost)
}

// again is told a further way to a node that is known.
func (s *search) again(i, from int32, step StepKind, aux uint64, cost int) {
	n := &s.nodes[i]
	if n.from == from && n.step == step || from == i {
		return
	}
	other := edge{aux, from, step}
	if cost < int(n.cost) && n.flags&nodeDone == 0 {
		other = edge{n.aux, n.from, n.step}
		n.from, n.step, n.aux, n.cost = from, step, aux, uint16(cost)
		s.enqueue(i, cost)
	}
	// That an optimizer has its state by parameter is no news: keys are no further holders.
	if n.flags&nodeTensor != 0 && other.step != StepEntry && len(s.also[i]) < maxAlso {
		s.also[i] = append(s.also[i], other)
	}
}

func (s *search) stop(why string) {
	if s.stopped == "" {
		s.stopped = why
	}
}

// below reports whether a node's path begins at a root.
func (s *search) below(i int32, root int) bool { return s.rootOf(i) == root }

// rootOf returns the index of the root where a node's path begins, by way of the adopted.
func (s *search) rootOf(i int32) int {
	for {
		root := s.firstRoot(i)
		node, is := s.adopted[root]
		if !is {
			return root
		}
		i = node
	}
}

// firstRoot returns the index of the root from which the search came to a node. It keeps the roots of all
// nodes of a long path: many storages share it.
func (s *search) firstRoot(i int32) int {
	const long = 256
	steps, at := 0, i
	for ; at >= 0; at = s.nodes[at].from {
		if int(at) < len(s.rootsOf) && s.rootsOf[at] < 0 {
			at = s.rootsOf[at]
			break
		}
		steps++
	}
	if steps > long {
		if s.rootsOf == nil {
			s.rootsOf = make([]int32, len(s.nodes))
		}
		for ; steps > 0; steps-- {
			s.rootsOf[i] = at
			i = s.nodes[i].from
		}
	}
	return int(-1 - at)
}
