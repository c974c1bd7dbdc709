// SPDX-License-Identifier: Apache-2.0

package holders

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
