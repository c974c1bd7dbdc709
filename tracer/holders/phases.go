// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// walk is one walk. Its phases share the search: each adds objects to it or asks it who holds them.
type walk struct {
	Options
	scope
	ctx     context.Context
	mem     peek.Memory   // what is read
	live    *peek.Process // the same, if it is a process that runs, or nil
	copy    *peek.Copy
	begin   time.Time
	result  *Result
	tracked []uint64 // objects that the collector tracks
	changed bool     // lists or containers changed while they were read

	search      *search
	roots       *rootFinder
	guesses     *weigher
	allocations *allocationFinder
	loose       *looseFinder
}

// run runs the phases, in this order.
func (w *walk) run(ctx context.Context) error {
	r := w.result
	r.Times.Copy = w.lap()
	py, err := newPython(ctx, w.copy)
	if ctx.Err() != nil {
		return fmt.Errorf("read Python: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	w.plan(py)
	if err := w.listObjects(py); err != nil {
		return err
	}
	r.Times.Lists = w.lap()
	w.findRoots()
	if err := w.searchPaths(); err != nil {
		return err
	}
	r.Objects = len(w.search.nodes)
	r.Times.Search = w.lap()
	if err := w.allocations.run(); err != nil {
		return err
	}
	r.Loose = w.loose.run(w.tracked)
	if err := w.guesses.run(); err != nil {
		return err
	}
	if err := w.search.storages.scan(w.sweeper()); err != nil {
		return err
	}
	w.searchMoved()
	if err := w.adopt(); err != nil {
		return err
	}
	r.Times.Loose = w.lap()
	later := w.readAgain()
	w.search.markParameters()
	w.name()
	(&savedFinder{search: w.search, result: w.result}).run()
	if w.live != nil {
		w.verify(<-later)
		w.admit()
	}
	waste := wasteFinder{search: w.search, result: w.result}
	if w.live != nil {
		waste.now = peek.NewCopy(w.live, 64<<20)
		defer waste.now.Close()
	}
	waste.run()
	(&copyFinder{wasteFinder: &waste, names: newNamer(w.search, w.roots)}).run()
	w.finish()
	return nil
}

// plan makes the phases.
func (w *walk) plan(py *python) {
	w.result.Python = py.version
	w.search = newSearch(py, w.MaxObjects)
	w.roots = newRootFinder(w.search, privacy{w.HideNames})
	w.guesses = &weigher{search: w.search, sweeper: w.sweeper(), outOfUse: map[uint64]bool{}}
	w.loose = &looseFinder{search: w.search, native: map[int]int32{}}
	w.allocations = &allocationFinder{search: w.search, sweeper: w.sweeper(), result: w.result}
}

// sweeper returns what reads all memory once more.
func (w *walk) sweeper() sweeper {
	return sweeper{ctx: w.ctx, copy: w.copy, late: w.search.py.late}
}

// listObjects lists what the collector tracks, and finds out how PyTorch's tensors among it are
// laid out.
func (w *walk) listObjects(py *python) error {
	var broken, left int
	w.tracked, broken = py.collected(w.MaxObjects)
	w.result.Tracked = len(w.tracked)
	w.result.Automatic = py.automatic()
	w.search.reserve(len(w.tracked))
	w.changed = broken > 0
	w.result.problem(broken, "lists of the garbage collector changed while they were read")
	var tensors []uint64
	for _, a := range w.tracked {
		if w.search.isTensor(a) {
			tensors = append(tensors, a)
		}
	}
	w.search.storages.calibrate(tensors)
	w.host = w.Host
	if w.AddressesLater != nil {
		w.Addresses = w.AddressesLater()
	}
	w.ranges, left = sortedRanges(w.Addresses)
	w.result.problem(left, "allocations that were not searched: empty, listed twice or too many")
	w.search.atoms = len(w.ranges) > 0
	w.allocations.scope = w.scope
	if !w.search.storages.torch.found && len(w.ranges) == 0 {
		return fmt.Errorf("%w (%d objects of Python %s)", ErrNoTensors, len(w.tracked), py.version)
	}
	return nil
}

// findRoots enters modules and the variables of functions that run.
func (w *walk) findRoots() {
	threads, broken := w.roots.run(w.now())
	w.result.Threads = threads
	w.result.problem(broken, "threads whose frames changed while they were read")
}

// now returns the process as it goes on, or nil where nothing does.
func (w *walk) now() peek.Memory {
	if w.live == nil {
		return nil
	}
	return w.live
}

// searchPaths searches from the roots: what a stack may have left over comes after guesses.
func (w *walk) searchPaths() error {
	s := w.search
	for _, s.most = range []int{costDoubtful - 1, maxCost} {
		s.expandAll()
		if w.live != nil {
			s.expandAgain(w.live)
		}
		if err := w.guesses.run(); err != nil {
			return err
		}
	}
	if w.live != nil {
		w.changed = w.changed || len(s.doubtful) > 0
		w.result.problem(len(s.doubtful), "containers changed while they were read")
	}
	return nil
}

// searchMoved looks again, in the process as it is now, at all tensors and at what holds them,
// where many bytes have no path. The copy of what changes in each step can make sense and be of two
// moments: an attribute of one step, and at its address the tensor of another one, without the
// graph that both keep.
func (w *walk) searchMoved() {
	if w.live == nil {
		return
	}
	var none, all uint64
	for _, st := range w.search.storages.found {
		if w.wants(st) {
			all += st.bytes
			if st.holder < 0 {
				none += st.bytes
			}
		}
	}
	if float64(none) <= maxPathless*float64(all) {
		return
	}
	s := w.search
	kept := s.doubtful
	s.doubtful = nil
	for i := range int32(len(s.nodes)) {
		if n := s.nodes[i]; n.flags&nodeTensor != 0 {
			if n.from >= 0 {
				s.doubt(n.from)
			}
			s.doubt(i)
		}
	}
	s.expandAgain(w.live)
	s.doubtful = append(kept, s.doubtful...)
}

// adopt looks for who holds what no path leads to.
func (w *walk) adopt() error {
	a := &adoption{
		search: w.search, scope: w.scope, sweeper: w.sweeper(), stacks: stackWalk{search: w.search},
		allocations: w.allocations, loose: w.loose, outOfUse: w.guesses.outOfUse,
	}
	return a.run(w.now())
}

// name gives each storage and each allocation its holders.
func (w *walk) name() {
	n := newNamer(w.search, w.roots)
	w.result.Storages = make([]Storage, 0, len(w.search.storages.found)+len(w.allocations.list))
	for _, st := range w.search.storages.found {
		if !w.wants(st) {
			continue
		}
		r := Storage{Address: st.data, Bytes: st.bytes, DeviceType: int(st.deviceType), Device: int(st.device)}
		if st.holder >= 0 {
			r.Holder, r.Container = n.holder(st.holder), n.container(st.holder)
			r.Also = n.further(st, r.Holder)
		} else {
			r.Holder = n.native(st.native)
		}
		r.Part = n.part(st, r.Holder)
		st.result = len(w.result.Storages)
		w.result.Storages = append(w.result.Storages, r)
	}
	w.allocations.takeMissing()
	proxyFinder{w.search}.run(w.allocations.list)
	w.nameAllocations(n)
}

// nameAllocations adds the allocations to the result. Those that a storage explains after all are
// left out.
func (w *walk) nameAllocations(n *namer) {
	if len(w.allocations.list) == 0 {
		return
	}
	left := w.unexplained(w.search.storages.found)
	for k := range w.allocations.list {
		al := &w.allocations.list[k]
		al.result = -1
		if _, is := slices.BinarySearchFunc(left, al.Address, func(r Range, a uint64) int { return cmp.Compare(r.Address, a) }); !is {
			continue
		}
		r := Storage{
			Address: al.Address, Bytes: al.Bytes, DeviceType: deviceCUDA, Device: al.Device, Allocation: true, Inside: al.inside,
			Holder: n.native(al.native),
		}
		if al.node >= 0 {
			r.Holder, r.Container = n.objectHolder(al.node, al.inside), n.container(al.node)
			r.Part = r.Holder.part()
		} else if al.static {
			r.Part = modelpart.Workspace
		}
		al.result = len(w.result.Storages)
		w.result.Storages = append(w.result.Storages, r)
	}
}

// readAgain reads again, while storages are named, what verify compares.
func (w *walk) readAgain() <-chan *peek.Copy {
	later := make(chan *peek.Copy, 1)
	if w.live != nil {
		addresses := w.evidence()
		go func() {
			defer deadline.Join(w.ctx)()
			now := peek.NewCopy(w.live, 256<<20)
			now.Fetch(addresses)
			later <- now
		}()
	}
	return later
}

// verify compares what the result rests on with a later reading: each storage with the tensor that
// has it, and the words that hold the addresses of allocations. What changed is in motion.
func (w *walk) verify(now *peek.Copy) {
	defer now.Close()
	at := w.search.storages.torch.storage
	for _, st := range w.search.storages.found {
		if st.result < 0 {
			continue
		}
		same := now.U64(st.address) == w.copy.U64(st.address) && now.U32(st.address+8) != 0 &&
			now.U64(st.address+at) == st.data && now.U64(st.address+at+32) == st.bytes &&
			(st.tensor == 0 || now.U64(st.tensor+at) == st.address)
		if same && st.holder >= 0 {
			n := w.search.nodes[st.holder]
			same = n.flags&nodeTensor == 0 || now.U64(n.address+obType) == w.copy.U64(n.address+obType)
		}
		w.result.Storages[st.result].InMotion = !same
	}
	for _, al := range w.allocations.list {
		if al.result >= 0 && al.place.at != 0 {
			w.result.Storages[al.result].InMotion = now.U64(al.place.at) != w.copy.U64(al.place.at)
		}
	}
}

// evidence returns the addresses that verify reads, before storages are named.
func (w *walk) evidence() []uint64 {
	list := make([]uint64, 0, 3*len(w.search.storages.found)+len(w.allocations.list))
	for _, st := range w.search.storages.found {
		if !w.wants(st) {
			continue
		}
		list = append(list, st.address)
		if st.tensor != 0 {
			list = append(list, st.tensor)
		}
		if st.holder >= 0 && w.search.nodes[st.holder].flags&nodeTensor != 0 {
			list = append(list, w.search.nodes[st.holder].address)
		}
	}
	for _, al := range w.allocations.list {
		if al.place.at != 0 {
			list = append(list, al.place.at)
		}
	}
	return list
}

// admit reports which parts of the process were not read.
func (w *walk) admit() {
	r := w.result
	r.problem(int(w.live.SwappedPages()), "pages that are swapped out and were not read")
	r.Problems = append(r.Problems, w.live.ClosedFiles()...)
	if bytes := w.live.SkippedBytes(); bytes > 0 {
		r.problem(int(bytes>>20), "address space beyond the limit of a walk, which was not read, in MiB")
	}
}

func (w *walk) finish() {
	r, s := w.result, w.search
	if s.stopped != "" {
		r.Problems = append(r.Problems, s.stopped)
	}
	if err := w.copy.Err(); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	r.Bad, r.Copied = w.copy.Bad(), w.copy.Bytes()
	r.Storages = byAddress(r.Storages)
	r.Times.Rest = w.lap()
	r.Times.Total = time.Since(w.begin)
}

// byAddress sorts storages. It moves each once, since they are large.
func byAddress(list []Storage) []Storage {
	type place struct{ address, index uint64 }
	order := make([]place, len(list))
	for i := range list {
		order[i] = place{list[i].Address, uint64(i)}
	}
	slices.SortFunc(order, func(a, b place) int {
		if a.address != b.address {
			return cmp.Compare(a.address, b.address)
		}
		return cmp.Compare(a.index, b.index)
	})
	sorted := make([]Storage, len(list))
	for i, p := range order {
		sorted[i] = list[p.index]
	}
	return sorted
}

// lap returns the time since the begin, less what the parts so far took.
func (w *walk) lap() time.Duration {
	t := &w.result.Times
	return time.Since(w.begin) - t.Copy - t.Lists - t.Search - t.Loose - t.Rest
}
