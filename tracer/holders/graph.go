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
	maxAlso  = 4
	workUnit = 64 // references per object, at most, in all
)

// graph has the objects that were found and the cheapest way to each, and the queue of those that
// are to be expanded. It reads no memory.
type graph struct {
	nodes    []node
	index    table
	queue    [][]int32 // by cost
	low      int       // no queue below has nodes
	roots    []Root
	also     map[int32][]edge
	names    []string // of members and variables that are no string objects
	nameIDs  map[string]uint64
	maxNodes int
	work     uint64
	stopped  string        // why the search ended early
	rootsOf  []int32       // of nodes on long paths, as node.from has a root; 0: not known
	adopted  map[int]int32 // of roots: the nodes that turned out to hold what begins there
}

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
func (g *graph) reserve(objects int) {
	n := min(objects+objects/16, g.maxNodes, 1<<24)
	g.nodes = make([]node, 0, n)
	size := 1 << 12
	for size < 2*n {
		size *= 2
	}
	g.index.resize(size, 0)
}

// name returns an aux for a name that is no string object. It is odd, as addresses never are.
func (g *graph) name(text string) uint64 {
	id, known := g.nameIDs[text]
	if !known {
		if len(g.names) > 1<<20 {
			return 1
		}
		id = uint64(len(g.names))<<1 | 1
		g.names, g.nameIDs[text] = append(g.names, text), id
	}
	return id
}

func (g *graph) add(n node, cost int) {
	if len(g.nodes) >= g.maxNodes {
		g.stop(fmt.Sprintf("stopped after %d objects", g.maxNodes))
		return
	}
	n.cost = uint16(min(cost, maxCost))
	i := int32(len(g.nodes))
	g.nodes = append(g.nodes, n)
	g.index.put(i)
	g.enqueue(i, int(n.cost))
}

func (g *graph) enqueue(i int32, cost int) {
	g.queue[cost] = append(g.queue[cost], i)
	g.low = min(g.low, cost)
}

// again is told a further way to a node that is known.
func (g *graph) again(i, from int32, step StepKind, aux uint64, cost int) {
	n := &g.nodes[i]
	named := step == StepAttr || step == StepKey
	if n.from == from && n.step == step && (n.aux == aux || !named) || from == i {
		return
	}
	other := edge{aux, from, step}
	if cost < int(n.cost) && n.flags&nodeDone == 0 {
		other = edge{n.aux, n.from, n.step}
		n.from, n.step, n.aux, n.cost = from, step, aux, uint16(cost)
		g.enqueue(i, cost)
	}
	// That an optimizer has its state by parameter is no news: keys are no further holders.
	if n.flags&nodeTensor != 0 && other.step != StepEntry && len(g.also[i]) < maxAlso {
		g.also[i] = append(g.also[i], other)
	}
}

func (g *graph) stop(why string) {
	if g.stopped == "" {
		g.stopped = why
	}
}

// below reports whether a node's path begins at a root.
func (g *graph) below(i int32, root int) bool { return g.rootOf(i) == root }

// rootOf returns the index of the root where a node's path begins, by way of the adopted.
func (g *graph) rootOf(i int32) int {
	for {
		root := g.firstRoot(i)
		node, is := g.adopted[root]
		if !is {
			return root
		}
		i = node
	}
}

// firstRoot returns the index of the root from which the search came to a node. It keeps the roots
// of all nodes of a long path: many storages share it.
func (g *graph) firstRoot(i int32) int {
	const long = 256
	steps, at := 0, i
	for ; at >= 0; at = g.nodes[at].from {
		if int(at) < len(g.rootsOf) && g.rootsOf[at] < 0 {
			at = g.rootsOf[at]
			break
		}
		steps++
	}
	if steps > long {
		if g.rootsOf == nil {
			g.rootsOf = make([]int32, len(g.nodes))
		}
		for ; steps > 0; steps-- {
			g.rootsOf[i] = at
			i = g.nodes[i].from
		}
	}
	return int(-1 - at)
}

// spend counts references that are about to be read, and reports whether that is within bounds.
func (g *graph) spend(n uint64) bool {
	if n > maxEntries {
		return false
	}
	if g.work += n; g.work > workUnit*uint64(g.maxNodes) {
		g.stop("stopped after too many references")
		return false
	}
	return true
}

// next takes the cheapest node that is to be expanded and costs at most some. It reports whether
// there is one.
func (g *graph) next(most int) (int32, bool) {
	for g.low <= most {
		q := g.queue[g.low]
		if len(q) == 0 {
			g.queue[g.low] = nil
			g.low++
			continue
		}
		i := q[0]
		g.queue[g.low] = q[1:]
		n := &g.nodes[i]
		if n.flags&nodeDone != 0 || int(n.cost) != g.low && g.low < maxCost {
			continue
		}
		n.flags |= nodeDone
		return i, true
	}
	return 0, false
}
