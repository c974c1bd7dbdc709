// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
)

// Where the kernel half has allocators: those on GPUs, and those on the host, of which each worker of a data loader has one.
// They are apart so that hundreds of workers never take the room of a GPU's. Those of processes without CUDA are not left out: a process
// that loads a model to the host and uses CUDA afterwards would free what nobody saw allocated.
const (
	gpuAllocators  = "tensor_devices"
	hostAllocators = "host_tensor_devices"
)

// maxAllocatorsKnown is how many allocators of a process are looked up when it ends; forgetBlocks finds others.
const maxAllocatorsKnown = 64

// beginAllocators gives the kernel half the numbers of allocators, and what each begins as.
func (t *Tracer) beginAllocators() error {
	if err := t.coll.Maps["blank_tensor_device"].Put(uint32(0), &bpf.TensorDevice{Number: bpf.NoNumber}); err != nil {
		return fmt.Errorf("prepare the map of allocators: %w", err)
	}
	for _, name := range [...]string{"gpu_numbers", "host_numbers"} {
		numbers, first := t.coll.Maps[name], uint32(0)
		if name == "host_numbers" {
			first = bpf.MaxGPUAllocators
		}
		for n := numbers.MaxEntries(); n > 0; n-- { // the last one put is the first one taken
			if err := numbers.Put(nil, first+n-1); err != nil {
				return fmt.Errorf("number the allocators: %w", err)
			}
		}
	}
	return nil
}

// freeNumber gives the number of an allocator back, of which the kernel half has no more blocks but those in its near table. No
// program of the kernel half still has the allocator, which was deleted long before.
func (t *Tracer) freeNumber(number uint32) {
	numbers := t.coll.Maps["host_numbers"]
	if number < bpf.MaxGPUAllocators {
		numbers = t.coll.Maps["gpu_numbers"]
	}
	if near := t.coll.Maps["near_blocks"]; number < near.MaxEntries() && near.Put(number, &bpf.NearBlocks{}) != nil {
		return
	}
	_ = numbers.Put(nil, number)
}

func deviceOf(key bpf.TensorKey) (device int32, ok bool) {
	return tensorDevice(int(key.Device&0xff), int(int8(key.Device>>8)))
}

// allocatorsLike is the map that an allocator is in.
func (t *Tracer) allocatorsLike(key bpf.TensorKey) *ebpf.Map {
	if int(key.Device&0xff) == bpf.DeviceCUDA {
		return t.coll.Maps[gpuAllocators]
	}
	return t.coll.Maps[hostAllocators]
}

// allocatorOf names the allocator that an event is of.
func allocatorOf(e *bpf.Event) bpf.TensorKey {
	return bpf.TensorKey{Pid: e.Pid, Device: uint16(e.Result)&0xff | uint16(e.Device)<<8}
}

// has notes an allocator of a process; Tracer.mu is held.
func (p *process) has(key bpf.TensorKey) {
	if len(p.allocators) < maxAllocatorsKnown && !slices.Contains(p.allocators, key) {
		p.allocators = append(p.allocators, key)
	}
}
