// SPDX-License-Identifier: Apache-2.0

// Package gpuusage has the books told what NVML reports, and which GPUs each process sees.
package gpuusage

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// NVML is what the driver reports about GPUs and processes. Calls with a context may take as long
// as it lasts; the others return at once.
type NVML interface {
	GPUs(ctx context.Context) ([]ledger.GPU, error)
	Usage(ctx context.Context) ([]ledger.Usage, error)
	// Suspend closes all that is open of the driver until GPUs or Usage are called.
	Suspend(ctx context.Context) error
	// ResolveOrdinals returns the UUID of each CUDA ordinal of a process with this environment.
	ResolveOrdinals(environ []string, gpus []ledger.GPU) []string
	// GPUsByMinor returns the GPUs with these device nodes, and false if some are not among gpus.
	GPUsByMinor(minors []uint32, gpus []ledger.GPU) ([]ledger.GPU, bool)
}

// Options is what a Monitor needs. It calls the functions in a transaction, without a lock of its own:
// they must not block.
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

// timeout bounds one reading: a driver that hangs must not hang us. lastWait is how long the end of
// a run waits for the reading that is under way, and for the last one.
const (
	timeout  = 5 * time.Second
	lastWait = time.Second
)

// reading is what a panic costs, in words.
const reading = "a reading of NVML"

// Run reads once per second, soon after Soon, and once more when ctx ends. While no process uses
// CUDA, it has the driver suspended: see idle.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.soon:
			m.idle.end()
		case <-m.wake:
			if !m.idle.suspended {
				continue
			}
			m.idle.end()
		case done := <-m.rest:
			done <- m.suspend(time.Now().Add(idleAfter))
			continue
		case <-ctx.Done():
			if !m.idle.suspended {
				m.Read(ctx)
			}
			return
		case <-tick.C:
			if !m.idle.due(m.inUse()) {
				continue
			}
		}
		m.Read(ctx)
		if m.idle.over(m.inUse()) {
			_ = m.suspend(time.Time{}) // if it fails, the next reading is as always
		}
	}
}

// Soon asks for a reading: a process has made its first allocation, and may be gone in a second, or
// its first on another GPU, where the books know of nothing of it. It never blocks.
func (m *Monitor) Soon() { signal(m.soon) }

// Wake ends a suspension: a process, traced or not, begins to use CUDA. It never blocks.
func (m *Monitor) Wake() { signal(m.wake) }

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Read has the books take one reading of NVML. The end of run does not cut it short at once: a
// driver that was left in the middle of a call would refuse the last reading.
func (m *Monitor) Read(run context.Context) {
	if m.NVML == nil {
		return
	}
	m.one.Lock()
	defer m.one.Unlock()
	defer m.Defects.Recovered(reading)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer context.AfterFunc(run, func() { time.AfterFunc(lastWait, cancel) })()
	asked := clock.Now()
	gpus, err := m.NVML.GPUs(ctx)
	began := m.open()
	usage, usageErr := m.NVML.Usage(ctx)
	time := clock.Now()
	tx := m.Sequencer.Begin()
	defer tx.Done()
	pids := m.note(asked, gpus, usageErr == nil, len(usage) > 0)
	if err = errors.Join(err, usageErr); err != nil {
		tx.Tell(ledger.Warning{Text: "NVML gave no complete reading: " + untrusted.Clean(strings.TrimSpace(err.Error()))})
	}
	if len(gpus) > 0 {
		tx.Tell(ledger.GPUs(gpus))
	}
	for _, pid := range pids {
		m.tellDevices(tx, pid)
	}
	if usageErr == nil {
		tx.Read(reading, time, func(tx *sequence.Tx) { m.take(tx, began, time, usage) })
	}
}

// open has the books watch what changes while NVML is read, from now on.
func (m *Monitor) open() uint64 {
	tx := m.Sequencer.Begin()
	defer tx.Done()
	began := clock.Now()
	tx.Read(reading, began, func(tx *sequence.Tx) { tx.Tell(ledger.UsageOpened{Time: began}) })
	return began
}

// note keeps what NVML answered, and returns the processes whose GPUs the books do not know yet.
func (m *Monitor) note(asked uint64, gpus []ledger.GPU, complete, others bool) (pids []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others = others
	m.silence.read(asked, complete)
	if len(gpus) > 0 {
		m.gpus = gpus
	}
	for pid, p := range m.processes {
		if !p.told {
			pids = append(pids, pid)
		}
	}
	return pids
}

// take tells the books a reading between began and time, when they have all events before it.
func (m *Monitor) take(tx *sequence.Tx, began, time uint64, usage []ledger.Usage) {
	listed := map[uint32]int{}
	for i := range usage {
		at, known := m.Changed(usage[i].PID)
		usage[i].Rough = known && at >= began
		if known {
			listed[usage[i].PID]++
		}
	}
	for _, pid := range m.doubt(listed, usage, tx.HeldOrdinals) {
		tx.Tell(ledger.Devices{PID: pid, UUIDs: nil})
		m.LookAgain(pid)
	}
	m.Before(tx)
	tx.Tell(ledger.UsageReading{Time: time, Usages: usage})
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
