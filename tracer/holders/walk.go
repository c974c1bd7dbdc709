// SPDX-License-Identifier: Apache-2.0

// Package holders finds out who keeps the GPU memory of a running PyTorch: for each storage the
// Python path that keeps it alive, such as "model.layers.3.fc1.weight" or "Trainer.history[*]". It
// only reads memory: the process is not stopped, and no code runs in it. It copies what is resident,
// finds CPython's objects and PyTorch's in the copy, and searches the cheapest path from modules
// and frames to each storage.
//
// Everything that is read is hostile. Counts, bytes, depths and times are bounded; a process that
// changes its memory on purpose only spoils the answer about itself.
package holders

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// DefaultMemory is the most that a walk copies by default: 1 GiB.
	DefaultMemory = 1 << 30
	// DefaultObjects is the most objects that a walk looks at by default.
	DefaultObjects = 20 << 20
	// DefaultTime is the longest that a walk takes by default.
	DefaultTime = 30 * time.Second

	deviceCPU  = 0 // c10::DeviceType
	deviceCUDA = 1

	inUse    = "in use by the running step"
	byClass  = "backward pass" // in use by the running step, as the class of an object says
	onThread = "stack of a thread"
)

// ErrNoTensors reports a Python that has no tensor of PyTorch, where the caller named no allocations.
var ErrNoTensors = errors.New("no PyTorch tensor in the process")

// ErrExec reports a process that has executed another program while it was read.
var ErrExec = errors.New("it executed another program while it was read")

// Options are the limits of a walk. A zero means the default.
type Options struct {
	MaxMemory  uint64        // bytes that are copied; where more is resident, pages are read when needed
	MaxObjects int           // Python and C++ objects
	MaxTime    time.Duration // of the search
	HideNames  bool          // return classes only, no names of variables, attributes or keys
	Host       bool          // also storages in host memory
	// Addresses are live allocations of the driver, or live blocks of an allocator, each address once,
	// at most 2^20 of them. The walk searches memory for those in which no storage of PyTorch lies: an
	// object of any type that has the address is a holder. They are among Result.Storages, marked as
	// allocations. So are storages in host memory that one of them contains. The walk keeps no
	// reference to the slice.
	Addresses []Range
}

// Storage is the memory of one or more tensors, or an allocation that Options.Addresses names.
type Storage struct {
	Address    uint64 // of its first byte: the block's address for PyTorch's allocator
	Bytes      uint64
	DeviceType int // PyTorch's number: 0 CPU, 1 CUDA
	Device     int
	Holder     *Holder
	Also       []*Holder // further holders, at most 4
	Container  Container // the innermost container on the holder's path
	InMotion   bool      // it or its holder changed while the walk read them
	Allocation bool      // one of Options.Addresses, without a storage of PyTorch; Bytes and Device are the caller's
	Inside     bool      // of an allocation: its holder does not have its address, only one inside: weaker evidence
}

// Result is what one walk found.
type Result struct {
	Python    string // "3.13.5"
	Storages  []Storage
	Objects   int       // that were reached from a root
	Tracked   int       // by the collector
	Loose     int       // tracked, but reached from no root
	Automatic Automatic // whether the collector runs by itself
	Threads   int
	Execution Execution // of the process that was read
	Problems  []string  // what could not be read, as sentences
	Bad       uint64    // reads of addresses that nothing backs
	Copied    uint64    // bytes
	At        time.Time
	Times     Times
}

// Automatic is whether Python's garbage collector runs by itself: cycles stay where it does not.
type Automatic uint8

const (
	AutomaticUnknown Automatic = iota
	AutomaticOn
	AutomaticOff
)

// Times are how long the parts of a walk took.
type Times struct {
	Copy, Lists, Search, Loose, Rest, Total time.Duration
}

// Held returns the bytes with a holder in Python, and all bytes of storages.
func (r *Result) Held() (held, all uint64) {
	for _, s := range r.Storages {
		all += s.Bytes
		if s.Holder != nil && s.Holder.root.Kind != RootNone && s.Holder.root.Kind != RootNative {
			held += s.Bytes
		}
	}
	return held, all
}

// Walk finds who holds each storage of a process. If the process changed meanwhile and many bytes
// have no holder, Walk reads it once more, and returns the result with fewer such bytes.
func Walk(ctx context.Context, mem Memory, o Options) (*Result, error) {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	if o.MaxObjects <= 0 {
		o.MaxObjects = DefaultObjects
	}
	o.MaxObjects = min(o.MaxObjects, 1<<30)
	if o.MaxTime <= 0 {
		o.MaxTime = DefaultTime
	}
	ctx, cancel := context.WithTimeout(ctx, o.MaxTime)
	defer cancel()
	begin := time.Now()
	first, torn, err := once(ctx, mem, o)
	if err != nil || !torn {
		return first, err
	}
	second, _, err := once(ctx, mem, o)
	if errors.Is(err, ErrExec) {
		return nil, err
	}
	best := first
	if err == nil && second.pathless() < first.pathless() {
		best = second
	}
	best.Problems = append(best.Problems, "the process changed while it was read, and was read twice")
	best.Times.Total = time.Since(begin)
	return best, nil
}

// once walks once. torn reports that a second walk may find more.
func once(ctx context.Context, mem Memory, o Options) (result *Result, torn bool, err error) {
	w := &walk{Options: o, ctx: ctx, mem: mem, begin: time.Now(), result: &Result{At: time.Now()}}
	p, running := mem.(*Process)
	if running {
		w.result.Execution = p.execution()
	}
	if c, is := mem.(*Copy); is {
		w.copy, w.mem = c, c.mem
	} else {
		w.copy = NewCopy(mem, o.MaxMemory)
		defer w.copy.Close()
		if err := w.copy.Take(ctx); err != nil {
			return nil, false, err
		}
	}
	if err := w.run(ctx); err != nil {
		return nil, false, fmt.Errorf("find holders: %w", err)
	}
	if running && w.result.Execution.differs(p.execution()) {
		return nil, false, ErrExec
	}
	return w.result, running && w.changed && w.result.pathless() > maxPathless, nil
}

// maxPathless is the share of bytes without a holder above which a walk is repeated if lists or
// containers changed meanwhile: a list that grew while it was copied loses all that it holds.
const maxPathless = 0.05

// pathless returns the share of bytes of storages for which nothing was found.
func (r *Result) pathless() float64 {
	var none, all uint64
	for i := range r.Storages {
		s := &r.Storages[i]
		all += s.Bytes
		if !s.Allocation && !s.InMotion && s.Holder != nil && s.Holder.Root().Kind == RootNone {
			none += s.Bytes
		}
	}
	return float64(none) / float64(max(all, 1))
}

// walk is one walk.
type walk struct {
	Options
	ctx         context.Context
	mem         Memory // the process
	copy        *Copy
	search      *search
	begin       time.Time
	result      *Result
	ranges      []Range // Addresses, sorted
	allocations []allocation
	hits        []hit // of the addresses of allocations
	left        int   // objects that hold an address and were not searched
	orphans     []orphan
	changed     bool   // lists or containers changed while they were read
	first       bool   // while the places of addresses themselves are looked at
	word        uint64 // of the block that is looked for, on the way to an orphan
	level       int    // of the search upward from orphans
}

// lap returns the time since the begin, less what the parts so far took.
func (w *walk) lap() time.Duration {
	t := &w.result.Times
	return time.Since(w.begin) - t.Copy - t.Lists - t.Search - t.Loose - t.Rest
}

func (w *walk) run(ctx context.Context) error {
	r := w.result
	r.Times.Copy = w.lap()
	py, err := newPython(ctx, w.copy)
	if ctx.Err() != nil {
		return fmt.Errorf("read Python: %w", ctx.Err())
	}
	if err != nil {
		return err
	}
	r.Python = py.version
	w.search = newSearch(py, w.MaxObjects)
	w.search.hideNames = w.HideNames
	tracked, broken := py.collected(w.MaxObjects)
	r.Tracked = len(tracked)
	r.Automatic = py.automatic()
	w.search.reserve(len(tracked))
	w.changed = broken > 0
	w.problem(broken, "lists of the garbage collector changed while they were read")
	var tensors []uint64
	for _, a := range tracked {
		if w.search.isTensor(a) {
			tensors = append(tensors, a)
		}
	}
	w.search.calibrate(tensors)
	r.Times.Lists = w.lap()
	var left int
	w.ranges, left = sortedRanges(w.Addresses)
	w.problem(left, "allocations that were not searched: empty, listed twice or too many")
	w.search.atoms = len(w.ranges) > 0
	if !w.search.torch.found && len(w.ranges) == 0 {
		return fmt.Errorf("%w (%d objects of Python %s)", ErrNoTensors, len(tracked), py.version)
	}
	live := Memory(nil)
	if p, is := w.mem.(*Process); is {
		live = p
	}
	if err := w.walkRoots(live); err != nil {
		return err
	}
	r.Times.Search = w.lap()
	if err := w.findAllocations(); err != nil {
		return err
	}
	r.Loose = w.search.enterLoose(tracked)
	if err := w.weigh(); err != nil {
		return err
	}
	if err := w.scanStorages(); err != nil {
		return err
	}
	if err := w.findOrphans(live); err != nil {
		return err
	}
	r.Times.Loose = w.lap()
	w.name()
	if live != nil {
		w.verify(live)
		w.problem(int(live.(*Process).swappedPages()), "pages that are swapped out and were not read")
		r.Problems = append(r.Problems, live.(*Process).closedFiles()...)
		if p := live.(*Process); p.skipped > 0 {
			w.problem(int(p.skipped>>20), "address space beyond the limit of a walk, which was not read, in MiB")
		}
	}
	w.finish()
	return nil
}

func (w *walk) walkRoots(live Memory) error {
	s := w.search
	threads, broken := s.enterRoots(live)
	w.result.Threads = threads
	w.problem(broken, "threads whose frames changed while they were read")
	err := w.searchPaths(live)
	w.result.Objects = len(s.nodes)
	return err
}

// searchPaths searches from the roots: what a stack may have left over comes after guesses.
func (w *walk) searchPaths(live Memory) error {
	s := w.search
	for _, s.most = range []int{costDoubtful - 1, maxCost} {
		s.run()
		if live != nil {
			s.expandAgain(live)
		}
		if err := w.weigh(); err != nil {
			return err
		}
	}
	if live != nil {
		w.changed = w.changed || len(s.doubtful) > 0
		w.problem(len(s.doubtful), "containers changed while they were read")
	}
	return nil
}

// problem counts something that could not be read.
func (w *walk) problem(n int, sentence string) {
	if n > 0 {
		w.result.Problems = append(w.result.Problems, fmt.Sprintf("%s: %d", sentence, n))
	}
}

// name gives each storage its holders.
func (w *walk) name() {
	s, n := w.search, newNamer(w.search)
	for _, st := range s.found {
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
		st.result = len(w.result.Storages)
		w.result.Storages = append(w.result.Storages, r)
	}
	w.nameAllocations(n)
}

// further returns the other holders of a storage.
func (n *namer) further(st *storage, first *Holder) (also []*Holder) {
	add := func(h *Holder) {
		if h != first && h.relation != Graph && len(also) < maxAlso && !slices.Contains(also, h) && h.root.Kind != RootCycle && h.root.Kind != RootNative {
			also = append(also, h)
		}
	}
	for _, e := range n.also[st.holder] {
		add(n.along(st.holder, e))
	}
	for _, i := range st.others {
		add(n.holder(i))
	}
	return also
}

// verify reads each storage and the tensor that has it again. What changed is in motion.
func (w *walk) verify(live Memory) {
	now := NewCopy(live, 256<<20)
	defer now.Close()
	at := w.search.torch.storage
	for _, st := range w.search.found {
		if st.result < 0 {
			continue
		}
		same := now.u64(st.address) == w.copy.u64(st.address) && now.u32(st.address+8) != 0 &&
			now.u64(st.address+at) == st.data && now.u64(st.address+at+32) == st.bytes &&
			(st.tensor == 0 || now.u64(st.tensor+at) == st.address)
		if same && st.holder >= 0 {
			n := w.search.nodes[st.holder]
			same = n.flags&nodeTensor == 0 || now.u64(n.address+obType) == w.copy.u64(n.address+obType)
		}
		w.result.Storages[st.result].InMotion = !same
	}
	w.verifyAllocations(now)
}

func (w *walk) finish() {
	r, s := w.result, w.search
	if s.stopped != "" {
		r.Problems = append(r.Problems, s.stopped)
	}
	if w.copy.err != nil {
		r.Problems = append(r.Problems, w.copy.err.Error())
	}
	r.Bad, r.Copied = w.copy.bad, uint64(w.copy.count)<<pageShift
	slices.SortFunc(r.Storages, func(a, b Storage) int { return compare(a.Address, b.Address) })
	r.Times.Rest = w.lap()
	r.Times.Total = time.Since(w.begin)
}
