// SPDX-License-Identifier: Apache-2.0

// Package gpuusage books what NVML reports, and which GPUs each process sees.
package gpuusage

import (
	"sync"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Options is what a Monitor needs. It calls the functions in a transaction, without a lock of its
// own: they must not block.
type Options struct {
	NVML      NVML // nil without a driver
	Sequencer *sequence.Sequencer
	Defects   *panics.List

	// Changed returns the time of the latest event of a process, and false for one that is not
	// known.
	Changed func(pid uint32) (at uint64, known bool)
	// LookAgain asks for another Introduce of a process.
	LookAgain func(pid uint32)
	// NodeMemory returns the bytes of a process on each NUMA node, and whether they are lower
	// bounds. It may take seconds.
	NodeMemory func(pid uint32) (on map[uint32]uint64, cut bool, err error)
	// Before is called before the books take a reading.
	Before func(tx *sequence.Tx)
}

// Monitor reads NVML once per second, and knows the GPUs that each process sees. One goroutine
// calls Run, another one RunSystem, the worker calls Introduce, and any may call the other methods.
// Read waits for NVML: what reads the rings must not call it.
type Monitor struct {
	Options
	soon chan struct{}
	wake chan struct{}
	rest chan chan error
	idle idle       // of the goroutine of Run
	one  sync.Mutex // held while NVML is read: the books can watch one reading at a time

	mu        sync.Mutex          // guards what follows; with it held, only NVML's methods that return at once are called
	gpus      []ledger.GPU        // NVML's latest list
	listed    map[uint32]int      // on how many GPUs NVML listed a known process in the latest reading
	others    bool                // NVML listed a process, traced or not, in the latest reading
	processes map[uint32]*process // that were introduced
	silence   silence
}

// process is which GPUs a process sees; guarded by Monitor.mu.
type process struct {
	view   View
	told   bool     // the books know, or cannot know, its GPUs
	denied []string // UUIDs that NVML has denied
	uuids  []string // by CUDA ordinal
}

// NewMonitor returns a Monitor that has read nothing yet.
func NewMonitor(o Options) *Monitor {
	return &Monitor{Options: o, soon: make(chan struct{}, 1), wake: make(chan struct{}, 1), rest: make(chan chan error), listed: map[uint32]int{}, processes: map[uint32]*process{}}
}

// OneGPU reports whether NVML lists one GPU only.
func (m *Monitor) OneGPU() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gpus) == 1
}

// HasGPUs reports whether NVML has listed a GPU.
func (m *Monitor) HasGPUs() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gpus) > 0
}

// Lists reports whether NVML listed a known process in its latest reading.
func (m *Monitor) Lists(pid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed[pid] > 0
}

// OnOneGPU reports whether a process sees, or uses, one GPU only.
func (m *Monitor) OnOneGPU(pid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[pid]
	return p != nil && len(p.uuids) == 1 || m.listed[pid] == 1
}

// Silence returns a sentence about readings that NVML did not give, "" if it gave all, with times
// since begin.
func (m *Monitor) Silence(begin uint64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silence.text(begin)
}
