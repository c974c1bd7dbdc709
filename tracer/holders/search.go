// SPDX-License-Identifier: Apache-2.0

package holders

import "fmt"

// StepKind is one way in which an object holds another.
type StepKind uint8

const (
	stepRoot    StepKind = iota
	StepKey              // a value in a dictionary: ['name'] or [*]
	StepEntry            // a key of a dictionary
	StepIndex            // an element of a list, a deque or a set: [*]
	StepElement          // an element of a queue, whose memory has free places: [*]
	StepItem             // an element of a tuple: [1]
	StepAttr             // an attribute, a slot or a variable of a module
	StepChild            // a parameter, buffer or submodule of a torch.nn.Module
	StepField            // a field of a C structure that has no name
	StepCell             // a variable of an enclosing function
	StepLocal            // a local variable of a generator, a coroutine or a kept frame
	StepGrad             // .grad
	StepGraph            // the autograd graph of a tensor
	StepContext          // the context of a custom autograd function
	StepHook             // what a hook of the graph keeps
	StepBase             // the tensor that a view looks at
	stepThrough          // nothing that people write: a cell's value, the Python object of a tensor
	stepDict             // the dictionary of an instance, a class or a module
	stepModules          // _parameters, _modules, _buffers
	stepNext             // within a graph
	stepMore             // what a path has beyond maxDepth: "…"
)

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

// search finds the cheapest path from a root to each object.
type search struct {
	py      *python
	cpp     *rtti
	nodes   []node
	index   table
	queue   [maxCost + 1][]int32
	low     int // no queue below has nodes
	most    int // run leaves nodes that cost more
	roots   []Root
	also    map[int32][]edge
	names   []string // of members and variables that are no string objects
	nameIDs map[string]uint64
	modules map[uint64]bool // dictionaries and module objects that are roots
	nn      map[uint64]bool // string objects: whether they read _parameters, _modules or _buffers

	torch      torch
	storages   map[uint64]*storage
	found      []*storage // those of storages, in the order in which they were found
	maxNodes   int
	work       uint64
	stopped    string // why the search ended early
	hideNames  bool
	doubtful   []int32         // nodes that changed while they were copied
	untracked  bool            // enter dictionaries and tuples that the collector does not track
	missing    map[uint64]bool // objects that are entered though they hold nothing
	onlyNew    int32           // nodes before it get no further ways; 0: all do
	atoms      bool            // keep variables that hold nothing in atomRoots
	atomRoots  []atomRoot
	impls      []uint64      // TensorImpls of all memory, where there are storages without a path
	looseNodes map[int]int32 // of roots: the objects that only C or C++ holds
	adopted    map[int]int32 // of such roots: the nodes that turned out to hold these objects
	rootsOf    []int32       // of nodes on long paths, as node.from has a root; 0: not known
	block      span          // of malloc, where the last word was found
	stacks     []span
	guesses    []guess         // what wrapped memory may hold
	outOfUse   map[uint64]bool // words of it that hold nothing
	onStack    map[uint64]bool // C and C++ objects, and Python's, that the stacks of threads lead to
	libraries  map[string]bool // packages that are installed or Python's own
	visit      func(v uint64)  // instead of push, while references are only listed
}

func newSearch(py *python, maxObjects int) *search {
	s := &search{
		py: py, cpp: newRTTI(py.Copy), also: map[int32][]edge{}, nameIDs: map[string]uint64{}, modules: map[uint64]bool{},
		nn: map[uint64]bool{}, storages: map[uint64]*storage{}, maxNodes: maxObjects, libraries: map[string]bool{}, looseNodes: map[int]int32{}, adopted: map[int]int32{}, outOfUse: map[uint64]bool{}, most: maxCost,
	}
	s.index.nodes = &s.nodes
	return s
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

// pushPython enters a Python object that node from holds.
func (s *search) pushPython(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if !pointer(a) {
		return
	}
	if s.visit != nil {
		s.visit(a)
		return
	}
	if i, known := s.index.get(a); known {
		if i >= s.onlyNew {
			s.again(i, from, step, aux, cost)
		}
		return
	}
	t := s.py.typeOf(a)
	if t == nil || (t.kind == kindAtom || t.kind == kindStr) && !s.missing[a] {
		return
	}
	if !s.untracked && t.exact && (t.kind == kindDict || t.kind == kindTuple) && from >= 0 && s.py.u64(a-gcHead) == 0 {
		return // the collector does not track it: it holds nothing that is tracked
	}
	var flags uint8
	if t.tensor {
		flags = nodeTensor
	}
	s.add(node{address: a, aux: aux, from: from, step: step, flags: flags}, cost)
}

// pushCPP enters a C++ object.
func (s *search) pushCPP(a uint64, from int32, step StepKind, aux uint64, cost int) {
	if s.visit != nil {
		s.visit(a)
		return
	}
	if i, known := s.index.get(a); known {
		s.again(i, from, step, aux, cost)
		return
	}
	s.add(node{address: a, aux: aux, from: from, step: step, flags: nodeCPP}, cost)
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

// run expands the nodes that cost at most s.most, in the order of their cost.
func (s *search) run() {
	for s.low = 0; s.low <= s.most; {
		q := s.queue[s.low]
		if len(q) == 0 {
			s.queue[s.low] = nil
			s.low++
			continue
		}
		i := q[0]
		s.queue[s.low] = q[1:]
		n := &s.nodes[i]
		if n.flags&nodeDone != 0 || int(n.cost) != s.low && s.low < maxCost {
			continue
		}
		n.flags |= nodeDone
		s.expand(i)
		if s.py.late() {
			s.stop("stopped after the time limit")
		}
		if s.stopped != "" {
			return
		}
	}
}

// root enters an object that nothing needs to hold.
func (s *search) root(a uint64, r Root, step StepKind, aux uint64, cost int) {
	if len(s.roots) >= 1<<24 {
		return
	}
	if s.atoms && len(s.atomRoots) < maxAtomRoots {
		if t := s.py.typeOf(a); t != nil && t.kind == kindAtom {
			s.atomRoots = append(s.atomRoots, atomRoot{a, r, step, cost})
		}
	}
	s.roots = append(s.roots, r)
	s.pushPython(a, -int32(len(s.roots)), step, aux, cost)
}

// doubt notes a container whose content makes no sense.
func (s *search) doubt(i int32) {
	if n := len(s.doubtful); s.visit == nil && n < maxDoubtful && (n == 0 || s.doubtful[n-1] != i) {
		s.doubtful = append(s.doubtful, i)
	}
}

// expandAgain expands what changed while it was copied, as it is in the process now.
func (s *search) expandAgain(live Memory) {
	const tries = 3
	copied := s.py.Copy
	defer func() { s.py.Copy = copied }()
	for range tries {
		again := s.doubtful
		if len(again) == 0 || s.stopped != "" {
			return
		}
		s.doubtful = nil
		if p, is := live.(*Process); is && p.refresh() == nil {
			copied.regions = p.regions
		}
		s.py.Copy = NewCopy(live, 64<<20)
		for _, i := range again {
			s.expand(i)
		}
		s.py.Close()
		s.py.Copy = copied
		kept := s.doubtful
		s.run()
		s.doubtful = append(kept, s.doubtful...)
	}
}

// spend counts references that are about to be read, and reports whether that is within bounds.
func (s *search) spend(n uint64) bool {
	if n > maxEntries {
		return false
	}
	if s.work += n; s.work > workUnit*uint64(s.maxNodes) {
		s.stop("stopped after too many references")
		return false
	}
	return true
}
