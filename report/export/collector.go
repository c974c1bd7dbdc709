// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// CollectorOptions of a Collector.
type CollectorOptions struct {
	PID    uint32 // the process, 0: the only one that has memory on GPUs
	Events int    // events kept for the trace, the newest; 0: 100,000 (64 bytes each)
}

// Collector is a ledger that also keeps what a memory snapshot of PyTorch's kind has and books have not: where each
// block of one process lies, and in which order blocks came and went. A capture is played into it as into a ledger; then Torch writes
// it, as of that moment. It must be used from one goroutine at a time.
type Collector struct {
	*ledger.Ledger
	options CollectorOptions
	spaces  map[uint32]*space // by pid; with several processes to choose from they are dropped
	using   map[uint32]bool   // pids with memory on GPUs
	devices map[uint32][]string
	gpus    []ledger.GPU
	begin   uint64
}

const (
	defaultEvents = 100_000
	maxPIDs       = 1 << 16
)

// NewCollector returns one that feeds the ledger. The ledger must have seen nothing yet, and is fed by nobody else.
func NewCollector(l *ledger.Ledger, o CollectorOptions) *Collector {
	if o.Events <= 0 {
		o.Events = defaultEvents
	}
	return &Collector{
		Ledger: l, options: o,
		spaces: make(map[uint32]*space), using: make(map[uint32]bool), devices: make(map[uint32][]string),
	}
}

// Apply books one event, as the ledger does; it keeps no reference to e.
func (c *Collector) Apply(e *ledger.Event) {
	c.Ledger.Apply(e)
	s := c.spaceOf(e.PID)
	if s == nil {
		return
	}
	if takes(e) && !c.using[e.PID] {
		if c.using[e.PID] = true; c.options.PID == 0 && len(c.using) > 1 {
			c.spaces = nil // Torch cannot write them anyway
			return
		}
	}
	s.apply(e)
	if e.Op == ledger.AllocFailed && s.isOutOfMemory(e) {
		s.outOfMemory(e, c.free(e))
	}
}

// takes says whether an event gives its process memory on a GPU.
func takes(e *ledger.Event) bool {
	return e.Op == ledger.Alloc && (e.Kind.Owned() || e.Kind == ledger.Tensor && e.Device != ledger.CPUDevice)
}

// spaceOf returns what is kept of a process, nil if it is not wanted.
func (c *Collector) spaceOf(pid uint32) *space {
	if c.options.PID != 0 && pid != c.options.PID {
		return nil
	}
	s := c.spaces[pid]
	if s == nil && c.spaces != nil && len(c.spaces) < maxPIDs {
		s = newSpace(c.options.Events)
		s.begin = c.begin
		c.spaces[pid] = s
	}
	if s == nil && len(c.using) > 1 && len(c.using) < maxPIDs {
		c.using[pid] = true // the list of pids to choose from goes on
	}
	return s
}

// Tell hands an input to the ledger, and keeps what a snapshot of PyTorch's needs of it.
func (c *Collector) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Begin:
		c.begin = in.Time
		for _, s := range c.spaces {
			s.begin = in.Time
		}
	case ledger.BlockList:
		if s := c.spaceOf(in.PID); s != nil {
			s.setBlocks(slices.Clone(in.Blocks)) // the list is the ledger's from then on
		}
	case ledger.Process:
		if s := c.spaceOf(in.PID); s != nil && in.Begin != 0 {
			s.born = in.Begin
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

// free is what a GPU had free when it was read last before an event; 0 if that is not known.
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

// chosen returns the process to write, and what is known of it.
func (c *Collector) chosen() (uint32, *space, error) {
	pids := slices.Sorted(maps.Keys(c.using))
	switch {
	case c.options.PID != 0:
		if s := c.spaces[c.options.PID]; s != nil {
			return c.options.PID, s, nil
		}
		return 0, nil, fmt.Errorf("nothing was recorded of process %d", c.options.PID)
	case len(pids) == 0:
		return 0, nil, fmt.Errorf("no process took memory on a GPU while it was recorded")
	case len(pids) > 1:
		names := make([]string, 0, maxNamed)
		for _, pid := range pids[:min(len(pids), maxNamed)] {
			names = append(names, fmt.Sprint(pid))
		}
		if len(pids) > maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(pids)-maxNamed))
		}
		return 0, nil, fmt.Errorf("a snapshot has the addresses of one process, and there are %d [choose one by its pid: %s]", len(pids), strings.Join(names, ", "))
	}
	return pids[0], c.spaces[pids[0]], nil
}

// maxNamed is how many pids an error names.
const maxNamed = 20
