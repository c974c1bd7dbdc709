// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"slices"
)

// Allocator reads the allocator of one process again and again. It keeps the addresses and the
// layout that it has found, and each use proves them; what no longer proves itself is looked for
// again. Its methods must not run at the same time. It keeps the bounds of segments, but no memory
// in proportion to the blocks.
type Allocator struct {
	r      *reader
	layout *Layout
	found  *place   // nil: look for it
	shared *Layouts // nil: none
	stale  bool     // the last reading failed: the memory map may have changed
}

// place is where a process has its allocator.
type place struct {
	inUse
	build   string   // the library's
	devices []uint64 // objects of the native allocator
	bounds  []bounds // of the segments, by device
	sets    []int
	list    uint64 // the blocks of another one
	most    int    // of them, in all walks
	removes bool   // fewer were seen later
}

// New returns a reader of the allocator of a process. A nil layout is found by the first walk. The
// caller keeps the memory open, and closes it.
func New(m Memory, known *Layout) *Allocator { return newAllocator(m, known, maxBytes) }

func newAllocator(m Memory, known *Layout, limit int) *Allocator {
	return &Allocator{r: newReader(m, limit), layout: known}
}

// Layout returns the layout that was given or found, or nil.
func (a *Allocator) Layout() *Layout { return a.layout }

// Walk reads all blocks and counters. It tries at most some times to find each device at rest.
// Otherwise it takes a walk whose ends saw the lock free, or else the last one. It returns an
// *Error where the allocator cannot be read.
func (a *Allocator) Walk(tries int) (*Snapshot, error) {
	a.begin()
	defer a.r.end()
	kept := a.found != nil
	s, err := a.walk(tries)
	if err != nil && kept { // the process may have another one by now
		a.forget()
		s, err = a.walk(tries)
	}
	if err != nil && a.layout != nil && a.found != nil && a.found.backend == Native && !a.r.over { // the layout may be of another build
		given := a.layout
		a.layout = nil
		if again, other := a.calibrated(tries); other == nil {
			return again, nil
		}
		a.layout = given
	}
	a.stale = err != nil
	return s, err
}

// begin starts a reading: after one that failed, with the memory map read again.
func (a *Allocator) begin() {
	a.r.begin()
	if a.stale {
		a.forget()
	}
}

// forget drops the addresses and reads the memory map again.
func (a *Allocator) forget() {
	a.found = nil
	a.r.refresh()
}

func (a *Allocator) walk(tries int) (*Snapshot, error) {
	if err := a.find(); err != nil {
		return nil, err
	}
	if a.found.backend != Native {
		return a.walkList(tries)
	}
	if a.layout == nil && a.shared != nil {
		a.layout = a.shared.Get(a.found.build)
	}
	return a.calibrated(tries)
}

// calibrated walks all devices of the native allocator with the layout, or finds one.
func (a *Allocator) calibrated(tries int) (*Snapshot, error) {
	l, err := a.provenLayout()
	if err != nil {
		return nil, a.explain(err)
	}
	var walks []*walk
	var spare walk
	refreshed := false
	a.found.bounds = append(a.found.bounds, make([]bounds, len(a.found.devices)-len(a.found.bounds))...)
	for i := range a.found.devices {
		w, err := a.walkDevice(&l, i, tries, &spare, &refreshed)
		if err != nil {
			return nil, err
		}
		walks = append(walks, w)
	}
	a.keep(l)
	return export(walks, a.r.cost), nil
}

// provenLayout returns a copy of the layout, to add to, or finds it.
func (a *Allocator) provenLayout() (Layout, error) {
	if a.layout != nil && slices.Equal(a.layout.sets, a.found.sets) {
		return *a.layout, nil
	}
	l, err := a.r.calibrate(a.found.devices, a.found.sets)
	if err != nil {
		return Layout{}, err
	}
	return *l, nil
}

// explain says that an allocator without blocks is not the one in use.
func (a *Allocator) explain(err error) error {
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == NoBlocks && a.found.class != "" {
		return &Error{Code: OtherBackend, Class: a.found.class}
	}
	return err
}

// keep replaces the layout if a walk has found more of it.
func (a *Allocator) keep(l Layout) {
	if a.layout == nil || a.layout.graphs != l.graphs || a.layout.stats != l.stats || !slices.Equal(a.layout.sets, l.sets) {
		a.layout = &l
	}
	if a.shared != nil && a.shared.Get(a.found.build) != a.layout {
		a.shared.Put(a.found.build, a.layout)
	}
}

// find looks for the allocator, or checks that the one that was found is still in use.
func (a *Allocator) find() error {
	if p := a.found; p != nil && (p.variable == 0 || a.r.U64(p.variable) == p.object) {
		return nil
	}
	a.found = nil
	l, err := a.r.findLibrary()
	if err != nil {
		return err
	}
	p := &place{inUse: l.inUse(), build: l.build()}
	switch p.backend {
	case Native:
		p.devices, p.sets, err = l.deviceObjects()
	case Async:
		p.list, err = l.asyncTable()
	case Pluggable:
		p.list, err = l.pluggableMap(p.object)
	}
	if err != nil {
		return err
	}
	a.found = p
	return nil
}

// walkDevice walks a device at most some times and returns the best walk. The one that it leaves
// over is in spare.
func (a *Allocator) walkDevice(l *Layout, d, tries int, spare *walk, refreshed *bool) (*walk, error) {
	best := new(walk)
	for try := 0; try < max(1, tries) && !best.device.Exact; try++ {
		w := spare
		w.read(a.r, l, &a.found.bounds[d], a.found.devices[d])
		if a.r.over {
			return nil, &Error{Code: TooMuch}
		}
		if (w.resting || w.blind) && !w.device.Exact && !*refreshed { // the heap may have grown
			if *refreshed = true; a.r.refresh() {
				try--
				continue
			}
		}
		if l.stats == 0 {
			return nil, &Error{Code: NoCounters, Blocks: len(w.blocks)}
		}
		if w.resting && !w.device.Exact {
			return nil, &Error{Code: Contradicted, Blocks: len(w.blocks), Bad: w.device.Contradicted}
		}
		if try == 0 || w.rank() >= best.rank() {
			*best, *spare = *w, *best
		}
	}
	return best, nil
}
