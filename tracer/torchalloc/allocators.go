// SPDX-License-Identifier: Apache-2.0

// Package torchalloc books what PyTorch's caching allocators report: sampled blocks, the totals of
// all blocks, and the memory in which they lie.
package torchalloc

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Where the kernel half has allocators: those on GPUs, and those on the host, of which each worker
// of a data loader has one. They are apart so that hundreds of workers never take the room of a
// GPU's. Allocators of processes without CUDA are kept too: a process that loads a model to the
// host and uses CUDA afterwards would free blocks whose allocation nobody saw.
const (
	gpuAllocators  = "tensor_devices"
	hostAllocators = "host_tensor_devices"
)

// Processes is what is known of processes, as in processes.Table.
type Processes interface {
	IsKnown(pid uint32) bool
	IsTraced(pid uint32) bool
	IsBooked(pid uint32) bool
}

// Options is what Allocators needs. It calls the functions without a lock of its own: they must not
// block.
type Options struct {
	Maps      map[string]*ebpf.Map // of the kernel half
	Sequencer *sequence.Sequencer
	Processes Processes

	// UsesCUDA reports whether a process has allocated from the driver or NVML lists it, and
	// whether that is sure: without NVML nothing is known of a process from before the attach.
	UsesCUDA func(pid uint32) (uses, sure bool)
	// Begin returns when the first probe was set, in ns of CLOCK_MONOTONIC.
	Begin func() uint64
	// BlockMaps are the maps of live blocks to create, and Used returns how many entries of the far
	// ones are taken.
	BlockMaps bpf.BlockMaps
	Used      func() uint64
	// LeaveRoom gives the kernel half back the room of blocks that are gone.
	LeaveRoom func(room uint64)
	// Meter is told how many reports each process has made at each reading.
	Meter *budget.Meter
	// Details is what WantDetails was told.
	Details bool
}

// Allocators keeps what is known of PyTorch's allocators beside the books. Methods with a
// transaction, or with an argument b that is one, are for the goroutine that has the transaction:
// the one that reads the events ring calls Handle, Disinherit, Leave and Drop for events, and
// others call Read once per second. PlaceLeft and Forget are the worker's: they may take 0.5 s for
// a million blocks, and take a transaction only to book them. Blocks takes as long, and must not be
// called in a transaction where there are many.
type Allocators struct {
	Options
	event    ledger.Event // Handle's: one for each event would be garbage
	unplaced atomic.Bool
	maps     blockMaps
	details  details // Handle's

	mu        sync.Mutex // guards what follows, never for long
	processes map[uint32]*process
	left      Owners         // of processes that have ended, whose blocks are still to be placed
	near      bpf.NearBlocks // the table that was read last
}

// process is a process that has allocators; guarded by Allocators.mu.
type process struct {
	reports      bool            // an event came from one of its allocators
	allocators   []bpf.TensorKey // that are known, at most maxKnown
	inherited    []ledger.Event  // first reports of allocators that may be its parent's
	dated, older bool            // it was looked up whether the process is older than the session, and it is
	counted      map[bpf.TensorKey]counted
	count        budget.Count
}

// counted is what was counted of an allocator: the kernel half begins anew when it gets another
// number.
type counted struct {
	number  uint32
	reports uint64
}

// maxKnown is how many allocators of a process are looked up when it ends; Forget finds others.
const maxKnown = 64

// New returns Allocators, and gives the kernel half their numbers and what each begins as.
func New(o Options) (*Allocators, error) {
	a := &Allocators{Options: o, maps: blockMaps{prepared: make(chan struct{})}, processes: map[uint32]*process{}, left: Owners{}}
	if err := a.Maps["blank_tensor_device"].Put(uint32(0), &bpf.TensorDevice{Number: bpf.NoNumber}); err != nil {
		return nil, fmt.Errorf("prepare the map of allocators: %w", err)
	}
	for _, name := range [...]string{"gpu_numbers", "host_numbers"} {
		numbers, first := a.Maps[name], uint32(0)
		if name == "host_numbers" {
			first = bpf.MaxGPUAllocators
		}
		for n := numbers.MaxEntries(); n > 0; n-- { // the last one put is the first one taken
			if err := numbers.Put(nil, first+n-1); err != nil {
				return nil, fmt.Errorf("number the allocators: %w", err)
			}
		}
	}
	if a.Details {
		if err := SetLayout(a.Maps, allProcesses, commonLayout); err != nil {
			return nil, fmt.Errorf("write the layout of blocks: %w", err)
		}
	}
	return a, nil
}

// of returns what is known of a process, from now on; a.mu is held.
func (a *Allocators) of(pid uint32) *process {
	p := a.processes[pid]
	if p == nil {
		p = &process{}
		a.processes[pid] = p
	}
	return p
}

// has notes an allocator of a process; Allocators.mu is held.
func (p *process) has(key bpf.TensorKey) {
	if len(p.allocators) < maxKnown && !slices.Contains(p.allocators, key) {
		p.allocators = append(p.allocators, key)
	}
}

// counts adds what an allocator has reported since it was looked at last; Allocators.mu is held.
func (p *process) counts(key bpf.TensorKey, value *bpf.TensorDevice) {
	if p.counted == nil {
		p.counted = map[bpf.TensorKey]counted{}
	}
	before, known := p.counted[key]
	if !known && len(p.counted) >= maxKnown {
		return
	}
	if before.number != value.Number || value.Begun < before.reports {
		before.reports = 0
	}
	p.count.Reports += value.Begun - before.reports
	p.counted[key] = counted{value.Number, value.Begun}
}

// Report reports whether an event came from an allocator of a process.
func (a *Allocators) Report(pid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.processes[pid]
	return p != nil && p.reports
}

// freeNumber gives back the number of an allocator of which the kernel half has no more blocks but
// those in its near table. No program of the kernel half still has the allocator, which was deleted
// long before.
func (a *Allocators) freeNumber(number uint32) {
	numbers := a.Maps["host_numbers"]
	if number < bpf.MaxGPUAllocators {
		numbers = a.Maps["gpu_numbers"]
	}
	near, _ := a.maps.list()
	if near != nil && number < near.MaxEntries() && near.Put(number, &bpf.NearBlocks{}) != nil {
		return
	}
	_ = numbers.Put(nil, number)
}

// SetLayout tells the kernel half, which has maps, where the PyTorch of a process has the fields of
// a Block.
func SetLayout(maps map[string]*ebpf.Map, pid uint32, l BlockLayout) error {
	return maps["block_layouts"].Put(pid, &l)
}

// dropDetails removes what maps keep of an allocator for details, and the layout of its process.
func dropDetails(maps map[string]*ebpf.Map, key bpf.TensorKey) {
	_ = maps["detailed_allocators"].Delete(&key)
	_ = maps["block_layouts"].Delete(key.Pid)
}

// each visits what the kernel half has of allocators.
func (a *Allocators) each(visit func(key bpf.TensorKey, value *bpf.TensorDevice, device int32)) {
	for _, name := range [...]string{gpuAllocators, hostAllocators} {
		var key bpf.TensorKey
		var value bpf.TensorDevice
		for i := a.Maps[name].Iterate(); i.Next(&key, &value); {
			if device, ok := deviceOf(key); ok && value.Number != bpf.NoNumber {
				visit(key, &value, device)
			}
		}
	}
}

// mapOf returns the map that an allocator is in.
func (a *Allocators) mapOf(key bpf.TensorKey) *ebpf.Map {
	if int(key.Device&0xff) == bpf.DeviceCUDA {
		return a.Maps[gpuAllocators]
	}
	return a.Maps[hostAllocators]
}

// keyOf names the allocator that sent an event.
func keyOf(e *bpf.Event) bpf.TensorKey {
	return bpf.TensorKey{Pid: e.Pid, Device: uint16(e.Result)&0xff | uint16(e.Device)<<8}
}

func deviceOf(key bpf.TensorKey) (device int32, ok bool) {
	return tensorDevice(int(key.Device&0xff), int(int8(key.Device>>8)))
}

// tensorDevice returns the device of a c10::Device, and false for one that is neither a GPU nor the
// host.
func tensorDevice(kind, index int) (int32, bool) {
	switch {
	case kind == bpf.DeviceCPU:
		return ledger.CPUDevice, true
	case kind == bpf.DeviceCUDA && index >= 0:
		return int32(index), true
	}
	return 0, false
}
