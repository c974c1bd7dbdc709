// SPDX-License-Identifier: Apache-2.0

// Package tracer finds processes that use CUDA, probes their allocation functions, and keeps the
// books of what they hold.
//
// The kernel reports, user space keeps the books: events and new stacks come through two rings,
// each read by one goroutine. Others do everything that can take long (scanning, loading unwind
// tables, attaching, NVML), so that the rings never wait for it.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/torchalloc"
	"github.com/vramprof/vramprof/tracer/unwind"
	"github.com/vramprof/vramprof/tracer/unwindcache"
	"github.com/vramprof/vramprof/tracer/workload"
)

// ErrNoProcess means that no process uses CUDA, and waiting was not asked for.
var ErrNoProcess = errors.New("no process uses CUDA")

// Config selects what to trace, and how. Without PIDs, Name and Command: every process.
type Config struct {
	PIDs          []uint32
	Name          *regexp.Regexp      // matched against comm, and the base names of the first two arguments
	Command       []string            // started by Run, with all its children
	Stdin         *os.File            // the command's; nil: ours
	Stdout        *os.File            // likewise
	Stderr        *os.File            // likewise
	Duration      time.Duration       // of tracing, from Ready on; 0: no limit
	Wait          bool                // do not end with ErrNoProcess when nothing uses CUDA yet
	NVML          gpuusage.NVML       // nil without a driver
	WantTensors   bool                // warn if no PyTorch is found whose tensors can be traced
	NoTensors     bool                // do not trace tensors
	Budget        float64             // tensors: tracing takes at most this share of a thread's time; 0: no limit
	DriverObjects bool                // trace what the driver takes for itself
	Sample        uint64              // tensors: one in so many bytes on average; 0: all
	SampleLimit   uint32              // tensors per second and allocator, at least 10: beyond, Sample doubles; 0: no limit
	Details       bool                // tensors: read what a replay of the allocator needs; with Sample 0
	OOM           func(oom.Error)     // gets each out-of-memory error that is not retried, from one goroutine; may be nil
	Memory        uint64              // bytes that vramprof may take, which sizes its tables; 0: only their own limits
	Tables        *unwindcache.Dir    // keeps unwind tables between sessions; nil: nothing does
	Walks         *heapscan.Options   // how holders are looked for: Every, MaxMemory and HideNames; nil: not at all
	Capture       ledger.Books        // gets every input of the ledger, from several goroutines, one at a time; may be nil
	Note          func(string)        // progress for a person; may be nil
	Ready         func(pids []uint32) // called once, when the processes that use CUDA are probed; may be nil
	Watchers

	ofTests
}

// Watchers are told what happens; each may be nil.
type Watchers struct {
	Follow ledger.Books // gets what the ledger gets, after it; it must not call the tracer
	Stage  func(Stage)  // is told what Run waits for until Ready, from any goroutine
}

// ofTests is zero but in tests.
type ofTests struct {
	pace     probes.Pace       // of the probes of wrappers
	entries  map[string]uint32 // sizes of the kernel half's maps: entries, bytes of rings
	marked   bool              // read pages that NUMA balancing has marked, also on a host that does not balance
	patience time.Duration     // of pauses, with the counters of one process; 0: the default
}

// Tracer traces from New to Close. It is the wiring between types that own what they know, each
// with a lock of its own:
//
//   - sequencer: the ledger and the capture, and the transactions that book
//   - table, usage, tensors, shares, ooms: processes, NVML's readings, PyTorch's allocators, losses and
//     out-of-memory errors
//   - discovery: libraries and their probes
//   - unwind, stacks, reader, tables: unwind tables and stacks
//   - events, losses: the events ring, and what could not be booked
//   - snapshots, eviction: copies of the books; what is dropped
//
// One event is booked in one transaction of the sequencer: see eventReader. A transaction comes
// before every other lock, and no type calls another one with its own lock held. The goroutine of
// Run reads the events ring, and reader has one for the stacks ring: these two never wait for what
// can take long. The worker does (jobs up to jobForget), the loader of unwind tables (the others),
// and the goroutines of usage, ooms, the totals of tensors and the capture.
type Tracer struct {
	config Config
	kernelHalf
	defects panics.List

	sequencer *sequence.Sequencer
	table     *processes.Table
	names     *processes.Names
	reaper    *processes.Reaper
	usage     *gpuusage.Monitor
	tensors   *torchalloc.Allocators
	shares    *shares.Shares
	ooms      *oom.Queue
	unwind    *unwind.Unwinder
	stacks    *stacks.Store
	reader    stacks.Reader
	meter     budget.Meter
	limits    ledger.Limits // as the books were told last; read and written in a transaction

	jobs          *jobs
	discovery     discovery
	tables        tableLoader
	introductions introductions
	events        eventReader
	losses        losses
	snapshots     snapshots
	eviction      eviction
	command       *command
}

// New loads programs into the kernel, which still verifies some when New returns: Run returns an
// error if the kernel rejects one. Nothing is probed yet.
func New(config Config) (*Tracer, error) {
	if config.Note == nil {
		config.Note = func(string) {}
	}
	if config.pace == (probes.Pace{}) {
		config.pace = probes.DefaultPace
	}
	if config.Ready == nil {
		config.Ready = func([]uint32) {}
	}
	if config.Stage == nil {
		config.Stage = func(Stage) {}
	}
	types := btf.NewCache()
	kernel, err := bpf.KernelTypes(types)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	t := &Tracer{
		config: config,
		jobs:   newJobs(),
	}
	t.discovery.ahead, t.introductions.host, t.events.idle = libraries.NewAhead(), workload.NewHost(), idleInterval
	t.sequencer = sequence.New(ledger.New(ledger.Options{Begin: clock.Now(), Host: host}), config.Capture, &t.defects)
	t.sequencer.Follow(config.Follow)
	t.limits = limitsOf(config.Memory)
	t.sequencer.Tell(t.limits)
	t.stacks = stacks.New(int(t.limits.Sites), symbolize.Options{MaxMemory: nameMemoryOf(config.Memory)})
	if err := t.load(kernel, types); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// everyone reports whether processes are traced that nobody has looked at yet.
func (c *Config) everyone() bool { return len(c.PIDs) == 0 && len(c.Command) == 0 }

// finished reports whether all that was asked for by pid or command has ended.
func (t *Tracer) finished() bool {
	return !t.table.Everyone() && (t.command == nil || t.command.ended()) && !t.table.AnyTraced()
}

// Run traces until ctx ends, for Config.Duration, or until every process that was asked for by pid
// or command has ended. It returns ErrNoProcess when there is nothing to trace.
func (t *Tracer) Run(ctx context.Context) error {
	err := t.run(ctx)
	if err == nil {
		t.snapshots.walkLast(ctx)
	}
	return err
}

func (t *Tracer) run(ctx context.Context) error {
	booking, end := context.WithCancel(context.WithoutCancel(ctx)) // events and stacks
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer func() {
		cancel()
		end()
		wait.Wait()
		tx := t.sequencer.Begin()
		defer tx.Done()
		defer t.defects.Recovered("a reading of NVML")
		tx.TakeAll()
		t.table.WarnOfNameless(tx)
	}()
	wait.Go(func() { t.reader.Run(booking) })
	tx := t.sequencer.Begin()
	t.table.Expect(tx)
	tx.Done()
	if err := t.discovery.discover(0); err != nil {
		return err
	}
	t.config.Stage(ReadsUsage)
	t.measurePrice()
	t.sequencer.BeginEvents() // readings wait for what is in the ring: see bookFirstEvents
	defer t.sequencer.EndEvents()
	t.usage.Read(ctx)
	t.events.bookFirst()
	t.introductions.due()
	if len(t.config.Command) > 0 {
		if err := t.startCommand(); err != nil {
			return err
		}
	} else if !t.config.Wait && len(t.table.Traced()) == 0 {
		return t.noProcess()
	}
	for _, pid := range withoutCUDA(t.config.PIDs, t.table.Traced()) {
		why := "did not use CUDA when tracing began: it mapped neither libcuda nor libcudart"
		if !procfs.Exists(pid) {
			why = "ended before it could be traced"
		}
		t.sequencer.Warn(0, fmt.Sprintf("process %d %s", pid, why))
	}
	wait.Go(func() { t.newWorker().run(ctx) })
	wait.Go(func() { t.tables.run(ctx) })
	wait.Go(func() { t.usage.Run(ctx) })
	wait.Go(func() { t.usage.RunSystem(ctx) })
	wait.Go(func() { t.watchTensors(ctx) })
	wait.Go(func() { t.keepBudget(ctx) })
	wait.Go(func() { t.names.Run(ctx) })
	wait.Go(func() { t.tensors.Grow(ctx, func(text string) { t.sequencer.Warn(0, text) }) })
	wait.Go(func() { t.ooms.Run(ctx) })
	if t.config.Capture != nil {
		wait.Go(func() { t.snapshots.feed(ctx) })
	}
	wait.Go(func() { t.discovery.mapping.Tell(ctx, mappingPause, t.events.flush) })
	t.discovery.running.Store(clock.Now())
	t.config.Ready(t.table.Traced())
	tracing := ctx // the goroutines above go on until its events are read
	if t.config.Duration > 0 {
		var stop context.CancelFunc
		tracing, stop = context.WithTimeout(ctx, t.config.Duration)
		defer stop()
	}
	var reads sync.WaitGroup
	if scanner := t.snapshots.scanner; scanner != nil {
		reads.Go(func() { scanner.Run(tracing) })
	}
	if walker := t.snapshots.walker; walker != nil {
		reads.Go(func() { walker.Run(tracing) })
	}
	// A read of a process may take seconds to end, on a busy machine. The books are of the time
	// after that, so events and stacks are read until then.
	wait.Go(func() {
		<-tracing.Done()
		reads.Wait()
		end()
	})
	t.events.run(booking)
	return nil
}

// withoutCUDA returns those pids that were asked for and are not among those that use CUDA, each
// once.
func withoutCUDA(asked, using []uint32) (pids []uint32) {
	for _, pid := range asked {
		if !slices.Contains(using, pid) && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// notThese is the ErrNoProcess of processes that were asked for by pid, where others may use CUDA.
type notThese string

func (e notThese) Error() string      { return string(e) }
func (notThese) Is(target error) bool { return target == ErrNoProcess }

func (t *Tracer) noProcess() error {
	switch pids := t.config.PIDs; len(pids) {
	case 0:
	case 1:
		if _, err := libraries.OfProcess(pids[0]); errors.Is(err, fs.ErrPermission) {
			return notThese(fmt.Sprintf("whether process %d uses CUDA is unknown: %v", pids[0], err))
		}
		return notThese(fmt.Sprintf("process %d does not use CUDA: it maps neither libcuda nor libcudart (vramprof ps lists those that do; --name waits for one)", pids[0]))
	default:
		return notThese(fmt.Sprintf("processes %d do not use CUDA: they map neither libcuda nor libcudart (vramprof ps lists those that do; --name waits for one)", pids))
	}
	return fmt.Errorf("%w (to wait for one, use -a or --name)", ErrNoProcess)
}

// SkipWalks ends the walks for holders at the end, if they are under way and nobody has ended them
// yet. It reports whether it did.
func (t *Tracer) SkipWalks() bool { return t.snapshots.skipWalks() }

// Stack returns the frames of a stack id, leaf first. It names native frames on the first call.
func (t *Tracer) Stack(id uint64) []callstack.Frame { return t.stacks.Stack(id) }

// Opening tells other books what makes them equal to those of the session. Only Config.Capture may
// call it, in its own Apply and Tell, before it takes what it is told.
func (t *Tracer) Opening(to ledger.Books) { t.sequencer.Opening(to) }

// Checkpoint is Opening within a capture: see ledger.Ledger.Checkpoint.
func (t *Tracer) Checkpoint(to ledger.Books, most int) bool { return t.sequencer.Checkpoint(to, most) }

// SuspendNVML closes all that is open of NVIDIA's driver, for a minute at least unless another
// process begins to use CUDA. It is for while Run runs.
func (t *Tracer) SuspendNVML(ctx context.Context) error { return t.usage.Suspend(ctx) }

// Detach removes all probes at the same time; the books stay. It waits for the kernel: 0.1 to 2 s,
// or up to 0.1 s for each probe on kernels before 6.6.
func (t *Tracer) Detach() {
	var wait sync.WaitGroup
	wait.Go(t.discovery.learner.End)
	if t.discovery.files != nil {
		wait.Go(t.discovery.files.Close)
	}
	wait.Go(t.watch.detach)
	wait.Wait()
}

// Close detaches, and frees the resources of the kernel half.
func (t *Tracer) Close() {
	if t.prober != nil {
		_ = t.prober.Wait()
	}
	t.Detach()
	if t.command != nil {
		releaseAll(t.coll.Maps["processes"])
		t.command.guard.dismiss()
	}
	t.discovery.ahead.Close()
	if t.discovery.mapping != nil {
		t.discovery.mapping.Close()
	}
	if t.events.ring != nil {
		t.events.ring.Close()
	}
	if t.reader.Ring != nil {
		t.reader.Ring.Close()
	}
	if t.discovery.scanner != nil {
		t.discovery.scanner.Close()
	}
	if t.prober != nil {
		t.prober.Close()
	}
	t.shares.Close()
	t.eviction.sent.Close()
	t.tensors.Close()
	if t.coll != nil {
		t.coll.Close()
	}
	t.watch.close()
	if t.unwind != nil {
		t.unwind.Close()
	}
	t.stacks.Close()
}
