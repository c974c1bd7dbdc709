// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// CollectorOptions are options of a Collector.
type CollectorOptions struct {
	PID    uint32 // process; 0: the only one with memory on GPUs
	Events int    // size of the trace, which keeps the newest events; 0: 100,000 (64 bytes each)
}

// Collector is a ledger that also keeps what only a snapshot for PyTorch's viewers needs: where
// each allocation and block of one process lies, and in which order they came and went. Play a
// capture into it as into a ledger; Torch writes the snapshot as of then. It must be used from one
// goroutine at a time.
type Collector struct {
	*ledger.Ledger
	options CollectorOptions
	spaces  map[uint32]*space // by pid; nil if there are several processes to choose from
	using   map[uint32]bool   // pids that took memory on GPUs
	devices map[uint32][]string
	gpus    []ledger.GPU
}

const (
	defaultEvents = 100_000
	maxPIDs       = 1 << 16
)

// NewCollector returns a Collector that feeds l and observes it. l must be empty, and only the
// Collector may feed it.
func NewCollector(l *ledger.Ledger, o CollectorOptions) *Collector {
	if o.Events <= 0 {
		o.Events = defaultEvents
	}
	c := &Collector{
		Ledger: l, options: o,
		spaces: make(map[uint32]*space), using: make(map[uint32]bool), devices: make(map[uint32][]string),
	}
	l.Observe(observer{c})
	return c
}

// Apply books one event, as the ledger does; it keeps no reference to e.
func (c *Collector) Apply(e *ledger.Event) {
	c.Ledger.Apply(e)
	s := c.spaces[e.PID]
	if s == nil {
		return
	}
	s.now = max(s.now, e.Time)
	if isOutOfMemory(e) {
		s.outOfMemory(e, c.free(e))
	}
}

// Tell hands an input to the ledger, and keeps what a snapshot for PyTorch's viewers needs of it.
func (c *Collector) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.BlockList:
		if s := c.spaces[in.PID]; s != nil {
			s.setBlocks(slices.Clone(in.Blocks)) // the list belongs to the ledger from then on
		}
	case ledger.Walk:
		if s := c.spaces[in.PID]; s != nil {
			s.setWalk(&in)
		}
	case ledger.Devices:
		if len(c.devices) < maxPIDs {
			c.devices[in.PID] = slices.Clone(in.UUIDs)
		}
	case ledger.GPUs:
		c.gpus = append(c.gpus[:0], in...)
	}
	c.Ledger.Tell(in)
}

// free returns the bytes that a GPU had free at its last reading before an event; 0 if unknown.
func (c *Collector) free(e *ledger.Event) uint64 {
	uuid := ""
	if list := c.devices[e.PID]; e.Device >= 0 && int(e.Device) < len(list) {
		uuid = list[e.Device]
	}
	for i := range c.gpus {
		if g := &c.gpus[i]; g.UUID == uuid || len(c.gpus) == 1 {
			return g.Total - min(g.Used, g.Total)
		}
	}
	return 0
}

// observer hands what the ledger reports to the space of the process.
type observer struct{ c *Collector }

// Began begins the space of a process. What was drawn of the one that had the pid before is
// forgotten.
func (o observer) Began(process, pid uint32) {
	c := o.c
	before := c.spaces[pid]
	if c.options.PID != 0 && pid != c.options.PID || c.spaces == nil || before == nil && len(c.spaces) >= maxPIDs {
		return
	}
	c.spaces[pid] = newSpace(process, c.options.Events)
	if before != nil {
		c.spaces[pid].now = before.now
	}
}

// spaceOf returns the space of a process; nil if it has none, or has ended and another process has
// its pid.
func (o observer) spaceOf(a *ledger.Allocation) *space {
	if s := o.c.spaces[a.PID]; s != nil && s.process == a.Process {
		return s
	}
	return nil
}

func (o observer) Allocated(a ledger.Allocation, time uint64) {
	if takes(&a) {
		o.use(a.PID)
	}
	if s := o.spaceOf(&a); s != nil {
		s.allocated(&a, time)
	}
}

// use notes that a process takes memory on a GPU. Torch cannot choose between several.
func (o observer) use(pid uint32) {
	c := o.c
	if c.using[pid] || c.options.PID != 0 || len(c.using) >= maxPIDs {
		return
	}
	if c.using[pid] = true; len(c.using) > 1 {
		c.spaces = nil
	}
}

func (o observer) Freed(a ledger.Allocation, time uint64) {
	if s := o.spaceOf(&a); s != nil {
		s.freed(&a, time)
	}
}

func (o observer) Mapped(m ledger.Mapping, time uint64) {
	if s := o.spaceOf(&m.Memory); s != nil {
		s.mapped(&m, time)
	}
}

func (o observer) Unmapped(m ledger.Mapping, time uint64) {
	if s := o.spaceOf(&m.Memory); s != nil {
		s.unmapped(&m, time)
	}
}

func (o observer) Moved(a ledger.Allocation) {
	if s := o.spaceOf(&a); s != nil {
		s.moved(&a)
	}
}

func (o observer) Unmatched(a ledger.Allocation, time uint64) {
	if s := o.spaceOf(&a); s != nil {
		s.unmatched(a.Space, a.Address, time)
	}
}

// chosen returns the process to write, and its space.
func (c *Collector) chosen() (uint32, *space, error) {
	pids := slices.Sorted(maps.Keys(c.using))
	switch {
	case c.options.PID != 0:
		if s := c.spaces[c.options.PID]; s != nil {
			return c.options.PID, s, nil
		}
		return 0, nil, fmt.Errorf("the session has nothing of process %d", c.options.PID)
	case len(pids) == 0:
		return 0, nil, fmt.Errorf("no process of the session allocated memory on a GPU")
	case len(pids) > 1:
		names := make([]string, 0, maxNamed)
		for _, pid := range pids[:min(len(pids), maxNamed)] {
			names = append(names, fmt.Sprint(pid))
		}
		if len(pids) > maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(pids)-maxNamed))
		}
		return 0, nil, fmt.Errorf("a snapshot shows one process, and %d allocated memory on GPUs (choose one by its pid: %s)", len(pids), strings.Join(names, ", "))
	}
	return pids[0], c.spaces[pids[0]], nil
}

// maxNamed is the most pids that an error names.
const maxNamed = 20
