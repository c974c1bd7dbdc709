// SPDX-License-Identifier: Apache-2.0

// Package explain makes the current books of a running process without a session: what NVML
// reports, what PyTorch's allocator has, and who keeps it.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/allocscan"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/workload"
)

const (
	// patience limits what a reading takes of a processor, and how long it waits for the process,
	// whose files can lie on a file system of its own; total limits it on the clock.
	patience = 20 * time.Second
	total    = 2 * time.Minute
	// driverPatience is how long it waits for a driver that hangs.
	driverPatience = 5 * time.Second
	// motion is how long an allocator in motion is read again, with a pause between two readings.
	motion = 200 * time.Millisecond
	pause  = time.Millisecond
	tries  = 5 // of each device in a row, until a reading is exact

	maxAddresses = 1 << 20 // blocks that a walk is asked for
)

// Process returns the books of a running process as they are now. What cannot be read is a warning
// in them. An error means that nothing is known; it has a mark for the exit code. It calls confine
// with the driver, nil without one, before it reads anything of the process.
func Process(ctx context.Context, pid uint32, hideNames bool, confine func(*nvml.Driver)) (*ledger.Snapshot, error) {
	driver, err := nvml.OpenHost(ctx)
	if err == nil {
		defer driver.Close(ctx)
	}
	confine(driver)
	started := procfs.StartTicks(pid)
	now := clock.Now()
	r := reader{pid: pid, driver: driver, listed: err, begin: now, usageAt: now}
	r.read(ctx, hideNames)
	if procfs.StartTicks(pid) != started {
		return nil, fmt.Errorf("process %d ended while it was read", pid)
	}
	if len(r.usage) == 0 && r.reading == nil && r.walked == nil {
		return nil, r.failure()
	}
	if ctx.Err() != nil { // half an answer looks like a whole one
		return nil, fmt.Errorf("interrupted while process %d was read", pid)
	}
	return r.books(), nil
}

// reader reads one process.
type reader struct {
	pid       uint32
	driver    *nvml.Driver // nil: listed has the reason
	walk      func()       // starts the walk for holders, once; nil: it was started
	begin     uint64
	gpus      []ledger.GPU
	usage     []ledger.Usage // of the process
	uuids     []string       // of CUDA's ordinals
	listed    error          // why NVML gave nothing
	usageAt   uint64         // when NVML was read
	apart     bool           // NVML's figure changed each time that the allocator was read
	at        uint64         // when the allocator was read
	reading   *allocator.Snapshot
	blocks    []holders.Range
	allocator error // why it was not read
	walkedAt  uint64
	walked    *holders.Result
	holders   error // why it was not walked
}

// read reads everything. The walk for holders begins with the first reading of the allocator, whose
// blocks it needs only when it has copied the memory.
func (r *reader) read(ctx context.Context, hideNames bool) {
	blocks, walked := make(chan []holders.Range, 1), make(chan struct{})
	r.walk = func() {
		go func() {
			defer close(walked)
			r.findHolders(ctx, hideNames, sync.OnceValue(func() []holders.Range { return <-blocks }))
		}()
	}
	r.readConsistently(ctx)
	blocks <- r.blocks
	<-walked
}

// agreement is how long NVML and the allocator are read again until they are of one moment. The
// figures of a process that grows meanwhile would contradict each other: less in use than its
// tensors have.
const agreement = 200 * time.Millisecond

// readConsistently reads NVML before and after the allocator, until nothing has changed between.
func (r *reader) readConsistently(ctx context.Context) {
	if r.driver == nil {
		r.readAllocator(ctx)
		return
	}
	asking, cancel := context.WithTimeout(ctx, driverPatience)
	if r.gpus, r.listed = r.driver.GPUs(asking); r.listed == nil {
		r.usage, r.listed = r.usageOf(asking)
	}
	cancel()
	r.readAllocator(ctx)
	if r.listed != nil {
		return
	}
	variables, _ := procenv.Read(r.pid) // without them, the GPUs that it has open tell
	of := workload.NewHost().Read(r.pid, variables, procfs.CommandLine(r.pid))
	view := gpuusage.Look(r.pid, variables, of.Container != "")
	r.uuids = view.Ordinals(r.gpus, r.driver)
	r.agree(ctx, func() ([]ledger.Usage, error) { return r.usageOf(ctx) }, func() { r.readAllocator(ctx) })
}

// agree reads NVML after the allocator, and both again if its figure has changed.
func (r *reader) agree(ctx context.Context, usage func() ([]ledger.Usage, error), allocator func()) {
	for end := time.Now().Add(agreement); ; {
		after, err := usage()
		if err != nil || slices.Equal(after, r.usage) || ctx.Err() != nil {
			return
		}
		r.usage, r.usageAt = after, clock.Now()
		if r.apart = time.Now().After(end); r.apart {
			return
		}
		allocator()
	}
}

// usageOf asks NVML what the process uses.
func (r *reader) usageOf(ctx context.Context) ([]ledger.Usage, error) {
	all, err := r.driver.Usage(ctx)
	return slices.DeleteFunc(all, func(u ledger.Usage) bool { return u.PID != r.pid }), err
}

// readAllocator reads PyTorch's allocator until all devices are exact, or for some time.
func (r *reader) readAllocator(ctx context.Context) {
	if r.walk != nil {
		r.walk()
		r.walk = nil
	}
	r.at, r.blocks = clock.Now(), nil
	limits := deadline.Limits{Processor: patience, Waiting: patience, Total: total}
	r.reading, r.allocator = deadline.Walk(ctx, limits, func(context.Context) (*allocator.Snapshot, error) {
		process, err := peek.Open(int(r.pid))
		if err != nil {
			return nil, err
		}
		defer process.Close()
		from := allocator.New(process, nil)
		var best *allocator.Snapshot
		for end := time.Now().Add(motion); ; time.Sleep(pause) {
			read, err := from.Walk(tries)
			if err == nil {
				best = read
			}
			if err == nil && read.Exact() || time.Now().After(end) {
				if best == nil {
					return nil, err
				}
				return best, nil
			}
			if isFinal(err) {
				return nil, err
			}
		}
	})
	if r.reading == nil {
		return
	}
	for i := range r.reading.Blocks {
		if b := &r.reading.Blocks[i]; b.State == allocator.Active && len(r.blocks) < maxAddresses {
			r.blocks = append(r.blocks, holders.Range{Address: b.Address, Bytes: b.Size, Device: b.Device})
		}
	}
}

// isFinal reports whether another attempt to read an allocator cannot succeed.
func isFinal(err error) bool {
	var cannot *allocator.Error
	return err != nil && (!errors.As(err, &cannot) || cannot.Code == allocator.NoLibrary || cannot.Code == allocator.NoDevices)
}

// findHolders looks for who keeps the blocks.
func (r *reader) findHolders(ctx context.Context, hideNames bool, blocks func() []holders.Range) {
	r.walkedAt = clock.Now()
	r.walked, r.holders = deadline.Walk(ctx, holders.Limits(), func(ctx context.Context) (*holders.Result, error) {
		process, err := peek.Open(int(r.pid))
		if err != nil {
			return nil, err
		}
		defer process.Close()
		return holders.Walk(ctx, process, holders.Options{AddressesLater: blocks, HideNames: hideNames})
	})
}

// failure returns why nothing is known of the process.
func (r *reader) failure() error {
	switch err := r.holders; {
	case errors.Is(err, unix.EPERM), errors.Is(err, fs.ErrPermission):
		return fault.Denied(r.pid, err)
	case errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("process %d does not exist", r.pid)
	}
	why := "NVML does not list it (vramprof ps lists the processes that use CUDA)"
	if r.listed != nil {
		why = r.listed.Error()
	}
	return fault.New(fault.NoProcess, fmt.Errorf("process %d holds no GPU memory that is known: %s, and it has no PyTorch", r.pid, why))
}

// books returns the books of what was read. All memory is older than they are.
func (r *reader) books() *ledger.Snapshot {
	host, _ := os.Hostname()
	l := ledger.New(ledger.Options{Begin: r.begin, Host: host, Unattached: true})
	l.Tell(ledger.GPUs(r.gpus))
	l.Tell(ledger.Process{PID: r.pid, Comm: procfs.Comm(r.pid), Begin: r.begin})
	if r.uuids != nil {
		l.Tell(ledger.Devices{PID: r.pid, UUIDs: r.uuids})
	}
	if r.listed == nil {
		l.Tell(ledger.UsageReading{Time: r.usageAt, Usages: r.usage})
	}
	if r.reading != nil {
		l.Tell(ledger.AllocatorReading{PID: r.pid, Time: r.at, Reading: allocscan.ReadingOf(r.reading)})
	}
	at := r.at
	if r.walked != nil {
		at = max(at, r.walkedAt)
		walk := heapscan.WalkOf(r.walked, r.blocks)
		walk.PID, walk.Time, walk.Took = r.pid, at, uint64(r.walked.Times.Copy)
		l.Tell(ledger.WalkOpened{PID: r.pid, Time: at})
		l.Tell(walk)
	}
	for _, text := range r.warnings() {
		l.Tell(ledger.Warning{PID: r.pid, Text: text})
	}
	return l.Snapshot(at, time.Now())
}

// warnings returns what was not read, unless nobody expects it.
func (r *reader) warnings() (list []string) {
	if r.listed != nil {
		list = append(list, "NVML gave no figures: "+r.listed.Error())
	}
	if r.apart {
		list = append(list, "the process grew or shrank while it was read: NVML's figure and the allocator's are of different moments")
	}
	var cannot *allocator.Error
	if r.allocator != nil && !(errors.As(r.allocator, &cannot) && cannot.Code == allocator.NoLibrary) {
		list = append(list, "PyTorch's allocator was not read: "+r.allocator.Error())
	}
	if r.holders != nil && !errors.Is(r.holders, peek.ErrNoPython) && !errors.Is(r.holders, holders.ErrNoTensors) {
		list = append(list, "holders are unknown: "+r.holders.Error())
	}
	return list
}
