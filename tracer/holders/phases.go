// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"fmt"
	"slices"
	"time"
)

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
