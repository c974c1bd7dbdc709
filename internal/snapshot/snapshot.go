// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads the state of PyTorch's CUDA allocator in a running process, without a
// probe, and writes it as the file that PyTorch's viewers read.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	// tries is how often each device is read in a row until a reading is exact.
	tries = 5
	// motion is how long an allocator in motion is read again, and pause the time between two
	// attempts.
	motion = 2 * time.Second
	pause  = time.Millisecond
	atRest = 20 // attempts in a row with the same error, after which it is no matter of time
	// patience limits what a reading takes of a processor, and how long it waits for the process,
	// whose files can lie on a file system of its own; total limits it on the clock.
	patience = 20 * time.Second
	total    = 2 * time.Minute
	// maxAddresses is the most blocks that a walk may be asked for.
	maxAddresses = 1 << 20
	maxPath      = 512 // bytes of a holder's path
	maxSteps     = 64
)

// Snapshot is the state of one process's allocator.
type Snapshot struct {
	state export.AllocatorState
	took  time.Duration // the reading of the allocator
	held  sum           // active blocks with a holder
	made  sum           // active blocks with a stack trace
}

// sum is a number of blocks and their bytes.
type sum struct{ blocks, bytes uint64 }

func (s *sum) add(bytes uint64) { s.blocks, s.bytes = s.blocks+1, s.bytes+bytes }

// Walk looks for the holders of the memory at addresses. An error means that they stay unknown.
type Walk func(blocks []holders.Range) (*holders.Result, error)

// Ask returns the live tensors of the process of which a session knows the stacks, as of now. An
// error means that they stay unknown.
type Ask func() ([]ledger.TensorBlock, callstack.Stacks, error)

// Take reads the allocator of a process, then with ask who allocated its blocks, and with walk who
// keeps them; nil does not look. The error has a remedy where there is one, and a mark for the exit
// code.
func Take(pid uint32, ask Ask, walk Walk) (*Snapshot, error) {
	started := procfs.StartTicks(pid)
	begin := time.Now()
	limits := deadline.Limits{Processor: patience, Waiting: patience, Total: total}
	read, err := deadline.Walk(context.Background(), limits, func(context.Context) (*allocator.Snapshot, error) { return readAllocator(pid) })
	if err != nil {
		return nil, explain(pid, err)
	}
	s := &Snapshot{state: export.AllocatorState{Snapshot: read, PID: pid, Comm: procfs.Comm(pid)}, took: time.Since(begin)}
	s.state.Host, _ = os.Hostname()
	if ask != nil {
		s.findStacks(ask)
	}
	s.readSettings()
	if walk != nil {
		s.findHolders(walk)
	}
	if procfs.StartTicks(pid) != started {
		return nil, fmt.Errorf("process %d ended while it was read", pid)
	}
	switch {
	case read.Superset:
		s.state.Warnings = append(s.state.Warnings, "some blocks may have been freed: PyTorch keeps the addresses of a pluggable allocator")
	case !read.Exact():
		s.state.Warnings = append(s.state.Warnings, s.inMotion())
	}
	return s, nil
}

// readAllocator reads until all devices are exact, as long as the allocator is in motion.
func readAllocator(pid uint32) (*allocator.Snapshot, error) {
	process, err := peek.Open(int(pid))
	if err != nil {
		return nil, err
	}
	defer process.Close()
	reader := allocator.New(process, nil)
	var best *allocator.Snapshot
	for a := (attempts{begin: time.Now()}); ; time.Sleep(pause) {
		read, err := reader.Walk(tries)
		if err == nil {
			best = read
		}
		switch {
		case err == nil && (read.Exact() || read.Superset):
			return read, nil
		case a.again(err):
		case best != nil:
			return best, nil
		default:
			return nil, err
		}
	}
}

// attempts are readings of an allocator that gave no exact result.
type attempts struct {
	begin time.Time
	last  allocator.Error
	same  int // attempts in a row with the error last
}

// again reports whether another attempt may succeed after one with an error, or with nil for a
// reading in motion.
func (a *attempts) again(err error) bool {
	var cannot *allocator.Error
	switch {
	case time.Since(a.begin) > motion:
		return false
	case err == nil:
		return true
	case !errors.As(err, &cannot) || !slices.Contains(torn, cannot.Code):
		return false
	}
	if a.same++; *cannot != a.last {
		a.same = 0
	}
	a.last = *cannot
	return a.same < atRest
}

// torn are why a layout may be refused while the process allocates.
var torn = []allocator.Code{allocator.NoTable, allocator.NoChain, allocator.NoPool, allocator.NoCounters, allocator.Contradicted}

// readSettings reads the variable that PyTorch took its allocator's settings from.
func (s *Snapshot) readSettings() {
	variables, err := procenv.Read(s.state.PID)
	value, set := procenv.Lookup(variables, "PYTORCH_CUDA_ALLOC_CONF")
	// After an error there is only the initial environment: the program may have set the variable.
	s.state.Settings, s.state.Known = value, set || err == nil
}

// findStacks names who allocated the active blocks. A block is that of the session if its address
// and size are, and it was allocated before the reading: it still lived when the session was asked.
func (s *Snapshot) findStacks(ask Ask) {
	list, stacks, err := ask()
	if err != nil {
		s.state.Warnings = append(s.state.Warnings, "stack traces are unknown: "+err.Error())
		return
	}
	if list == nil {
		return
	}
	known := make(map[uint64]*ledger.TensorBlock, len(list))
	for i := range list {
		known[list[i].Address] = &list[i]
	}
	ended := make(map[int]uint64) // when the reading of a device ended
	for i := range s.state.Devices {
		ended[s.state.Devices[i].Index] = s.state.Devices[i].To
	}
	s.state.Made, s.state.Stacks = make(map[uint64]uint64), stacks
	for i := range s.state.Blocks {
		b := &s.state.Blocks[i]
		x := known[b.Address]
		if b.State != allocator.Active || x == nil || x.Size != b.Size || x.Stack == 0 || x.Time > ended[b.Device] || len(stacks.Stack(x.Stack)) == 0 {
			continue
		}
		s.made.add(b.Size)
		s.state.Made[b.Address] = x.Stack
	}
}

// findHolders names who keeps the active blocks.
func (s *Snapshot) findHolders(walk Walk) {
	var ranges []holders.Range
	sizes := make(map[uint64]uint64)
	for i := range s.state.Blocks {
		if b := &s.state.Blocks[i]; b.State == allocator.Active && len(ranges) < maxAddresses {
			ranges = append(ranges, holders.Range{Address: b.Address, Bytes: b.Size, Device: b.Device})
			sizes[b.Address] = b.Size
		}
	}
	result, err := walk(ranges)
	if err != nil {
		s.state.Warnings = append(s.state.Warnings, "holders are unknown: "+err.Error())
		return
	}
	s.state.Keepers = make(map[uint64]export.Keeper)
	for i := range result.Storages {
		x := &result.Storages[i]
		// A block that was freed and allocated again since has another size.
		size, is := sizes[x.Address]
		if x.DeviceType == hostDevice || !is || x.Bytes > size || x.Holder == nil || x.Holder.Root().Kind == holders.RootNone {
			continue
		}
		if _, known := s.state.Keepers[x.Address]; !known {
			s.held.add(size)
			s.state.Keepers[x.Address] = keeperOf(x.Holder)
		}
	}
	s.state.Warnings = append(s.state.Warnings, result.Problems...)
}

// hostDevice is c10::DeviceType of memory on the host.
const hostDevice = 0

func keeperOf(h *holders.Holder) export.Keeper {
	path, steps := h.String(), h.Frames()
	return export.Keeper{Path: path[:min(len(path), maxPath)], Steps: steps[:min(len(steps), maxSteps)]}
}

// Write writes the snapshot as torch.cuda.memory._dump_snapshot does.
func (s *Snapshot) Write(w io.Writer) error { return export.TorchState(w, &s.state) }

// explain adds the remedy, and the exit code.
func explain(pid uint32, err error) error {
	var cannot *allocator.Error
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, fs.ErrPermission):
		return fault.Denied(pid, err)
	case errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("process %d does not exist", pid)
	case !errors.As(err, &cannot):
		return fmt.Errorf("process %d: %w", pid, err)
	}
	err = fmt.Errorf("process %d: %w%s", pid, err, remedy(cannot.Code))
	if cannot.Code == allocator.NoLibrary {
		return fault.New(fault.NoProcess, err)
	}
	return err
}

// remedy returns what to do about an allocator that cannot be read.
func remedy(why allocator.Code) string {
	switch why {
	case allocator.NoLibrary:
		return " (the process does not use PyTorch with CUDA; vramprof ps lists the processes that use CUDA)"
	case allocator.NoDevices:
		return " (try again when PyTorch has used a GPU)"
	case allocator.NoBlocks:
		return " (try again when a tensor is on the GPU)"
	case allocator.NoChain:
		return " (try again when the process has allocated more)"
	}
	return " (vramprof record -p PID traces it)"
}
