// SPDX-License-Identifier: Apache-2.0

// Package tracer finds processes that use CUDA, probes their allocation
// functions, and keeps the books of what they hold.
//
// The kernel reports, user space keeps the books: events and new stacks come
// through two rings, each read by one goroutine; everything that can take long
// (scanning, loading unwind tables, attaching) is done by a third, so that the
// rings never wait for it.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/booking"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/defects"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/tensors"
	"github.com/vramprof/vramprof/tracer/unwind"
	"github.com/vramprof/vramprof/tracer/usage"
	"github.com/vramprof/vramprof/tracer/workload"
)

// ErrNoProcess says that no process uses CUDA, and waiting was not asked for.
var ErrNoProcess = errors.New("no process uses CUDA")

// Config selects what to trace, and how. Without PIDs, Name and Command: every process.
type Config struct {
	PIDs        []uint32
	Name        *regexp.Regexp      // matched against comm, and the base names of the first two arguments
	Command     []string            // started by Run, with all its children
	Stdout      *os.File            // the command's; nil: ours
	Duration    time.Duration       // of tracing, from Ready on; 0: no limit
	Wait        bool                // do not end with ErrNoProcess when nothing uses CUDA yet
	NVML        usage.NVML          // nil without a driver
	WantTensors bool                // warn if no PyTorch is found whose tensors can be traced
	NoTensors   bool                // do not trace what PyTorch's allocator gives out
	Sample      uint64              // of tensors: one in so many bytes is sampled, on average; 0: all are
	SampleLimit uint32              // so many tensors a second and allocator, at least 10: where there would be more, Sample is doubled; 0: no limit
	OOM         func(oom.Error)     // called when a process runs out of GPU memory, from one goroutine; may be nil
	Memory      uint64              // bytes that we may take, by which tables are sized; 0: no limit but their own
	Capture     ledger.Books        // gets every input of the ledger, from several goroutines, one at a time; may be nil
	Note        func(string)        // progress for a person; may be nil
	Ready       func(pids []uint32) // called once, when the processes that use CUDA are probed; may be nil

	entries map[string]uint32 // of the kernel half's maps, in place of their own, so that a test can fill them; rings have as many bytes
}

// Tracer traces from New to Close.
type Tracer struct {
	config  Config
	coll    *ebpf.Collection // maps of the programs that probe functions
	watch   processWatch
	prober  *probes.Prober // the programs that probe functions
	files   *probes.Files
	learner probes.Learner
	unseen  probes.Unseen
	ahead   *libraries.Ahead
	scanner *libraries.Scanner
	mapping *libraries.MappingEvents
	unwind  *unwind.Unwinder
	stacks  *stacks.Store
	reader  stacks.Reader
	events  *ringbuf.Reader

	usage  *usage.Monitor
	desk   *booking.Desk
	event  ledger.Event // the latest: one for each would be garbage
	counts counts
	limits ledger.Limits // as the books were told last
	begin  atomic.Uint64 // of the books, when the first probe is set

	shares    *shares.Shares
	table     *processes.Table
	tensors   *tensors.Allocators
	ooms      *oom.Queue
	host      *workload.Host
	memlock   *unix.Rlimit  // of this process as it was, if it was lifted
	running   atomic.Uint64 // since when processes that begin are noticed; 0 before
	jobs      jobs
	loads     sync.WaitGroup // of unwind tables, of processes that discover has found
	command   *command
	defects   defects.List
	idle      time.Duration    // idleInterval, longer in a test
	asleep    bool             // readEvents': it waits for what wakes it
	beginOnce sync.Once        // the books begin when the first probe is set
	tap       func(raw []byte) // sees every event; to write test data
}

// New brings programs into the kernel, some of which are still being verified when it returns: Run says
// if the kernel refuses one. Nothing is probed yet.
func New(config Config) (*Tracer, error) {
	if config.Note == nil {
		config.Note = func(string) {}
	}
	if config.Ready == nil {
		config.Ready = func([]uint32) {}
	}
	types := btf.NewCache()
	kernel, err := bpf.KernelTypes(types)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	t := &Tracer{
		config: config,
		ahead:  libraries.NewAhead(),
		jobs:   newJobs(),
		host:   workload.NewHost(),
		idle:   idleInterval,
	}
	t.desk = booking.New(ledger.New(ledger.Options{Begin: clock.Now(), Host: host}), config.Capture, &t.defects)
	t.limits = limitsOf(config.Memory)
	t.desk.Tell(t.limits)
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
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer func() {
		cancel()
		wait.Wait()
		turn := t.desk.Take()
		defer turn.Done()
		defer t.defects.Recovered("a reading of NVML")
		turn.TakeAll()
		t.table.WarnOfNameless(turn)
	}()
	wait.Go(func() { t.reader.Run(ctx) })
	turn := t.desk.Take()
	t.table.Expect(turn)
	turn.Done()
	if err := t.discover(0); err != nil {
		return err
	}
	t.desk.BeginEvents() // readings wait for what is in the ring: see bookFirstEvents
	defer t.desk.EndEvents()
	t.usage.Read(ctx)
	t.bookFirstEvents()
	if len(t.config.Command) > 0 {
		if err := t.startCommand(); err != nil {
			return err
		}
	} else if !t.config.Wait && len(t.table.Traced()) == 0 {
		return t.noProcess()
	}
	wait.Go(func() { t.work(ctx) })
	wait.Go(func() { t.loadTablesOnDemand(ctx) })
	wait.Go(func() { t.usage.Run(ctx) })
	wait.Go(func() { t.watchTensors(ctx) })
	wait.Go(func() { t.ooms.Run(ctx) })
	wait.Go(func() { t.feedCapture(ctx) })
	wait.Go(func() { t.mapping.Tell(ctx, mappingPause, func() { _ = t.events.Flush() }) })
	t.running.Store(clock.Now())
	t.config.Ready(t.table.Traced())
	if t.config.Duration > 0 {
		timed, stop := context.WithTimeout(ctx, t.config.Duration)
		defer stop()
		t.readEvents(timed)
		return nil
	}
	t.readEvents(ctx)
	return nil
}

func (t *Tracer) noProcess() error {
	switch len(t.config.PIDs) {
	case 0:
	case 1:
		return fmt.Errorf("process %d maps neither libcuda nor libcudart: %w (to wait for it, use --name)", t.config.PIDs[0], ErrNoProcess)
	default:
		return fmt.Errorf("processes %d map neither libcuda nor libcudart: %w (to wait for them, use --name)", t.config.PIDs, ErrNoProcess)
	}
	return fmt.Errorf("%w (to wait for one, use -a or --name)", ErrNoProcess)
}

// Stack gives the frames of a stack id, leaf first; native frames are named
// on the first call.
func (t *Tracer) Stack(id uint64) []callstack.Frame { return t.stacks.Stack(id) }

// Detach takes all probes away; the books stay. On kernels before 6.6 it
// takes up to 0.1 s for each probe.
func (t *Tracer) Detach() {
	t.learner.End()
	if t.files != nil {
		t.files.Close()
	}
	t.watch.detach()
}

// Close ends everything and frees what the kernel holds for us.
func (t *Tracer) Close() {
	if t.prober != nil {
		_ = t.prober.Wait()
	}
	t.Detach()
	if t.command != nil {
		releaseAll(t.coll.Maps["processes"])
		t.command.guard.dismiss()
	}
	t.ahead.Close()
	if t.mapping != nil {
		t.mapping.Close()
	}
	if t.events != nil {
		t.events.Close()
	}
	if t.reader.Ring != nil {
		t.reader.Ring.Close()
	}
	if t.scanner != nil {
		t.scanner.Close()
	}
	if t.prober != nil {
		t.prober.Close()
	}
	t.shares.Close()
	if t.coll != nil {
		t.coll.Close()
	}
	t.watch.close()
	if t.unwind != nil {
		t.unwind.Close()
	}
	t.stacks.Close()
}
