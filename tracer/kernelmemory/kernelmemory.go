// SPDX-License-Identifier: Apache-2.0

// Package kernelmemory computes how much memory of the kernel tracing needs, without loading
// anything: BPF maps, and rings of perf events. Its functions may be called from any goroutine.
package kernelmemory

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Need is the kernel memory that tracing needs, in bytes.
type Need struct {
	Least  uint64 // at the start
	Torch  uint64 // more, when a PyTorch is traced
	Tables uint64 // of unwind tables, at most
	Most   uint64 // when every map is full
}

// CPUs returns how many CPUs this machine can have, and how many of them are online.
func CPUs() (possible, online int, err error) {
	if possible, err = ebpf.PossibleCPU(); err != nil {
		return 0, 0, fmt.Errorf("count the CPUs: %w", err)
	}
	if online, err = libraries.OnlineCPUs(); err != nil {
		return 0, 0, fmt.Errorf("count the CPUs: %w", err)
	}
	return possible, online, nil
}

// Compute returns the need of the running kernel on a machine with these numbers of CPUs.
func Compute(possible, online int) (Need, error) {
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		return Need{}, err
	}
	return compute(kernel, possible, online)
}

func compute(kernel *btf.Spec, possible, online int) (Need, error) {
	maps, blocks, err := byMap(kernel, possible)
	if err != nil {
		return Need{}, err
	}
	var sum, tables bpf.Memory
	for name, x := range maps {
		sum.Add(x)
		if unwind.OfTables(name) {
			tables.Add(x)
		}
	}
	rings := uint64(online * (libraries.RingPages(online) + 1) * os.Getpagesize())
	first := bpf.MemoryOf(blocks.Near, possible)
	first.Add(bpf.MemoryOf(blocks.Far[0], possible))
	need := Need{Least: sum.Reserved + sum.Caches + rings, Torch: first.Reserved + first.Caches, Tables: tables.Growth}
	need.Most = need.Least + sum.Growth + need.Torch + first.Growth
	for _, m := range blocks.Far[1:] {
		x := bpf.MemoryOf(m, possible)
		need.Most += x.Reserved + x.Caches + x.Growth
	}
	return need, nil
}

// ByMap returns the memory of each map that tracing begins with, by name. The names of an object's
// constants begin with "probes" or "watch".
func ByMap(kernel *btf.Spec, possible int) (map[string]bpf.Memory, error) {
	maps, _, err := byMap(kernel, possible)
	return maps, err
}

func byMap(kernel *btf.Spec, possible int) (map[string]bpf.Memory, bpf.BlockMaps, error) {
	maps, err := unwind.Memory(kernel, possible)
	if err != nil {
		return nil, bpf.BlockMaps{}, err
	}
	probes, err := bpf.LoadProbes(kernel)
	if err != nil {
		return nil, bpf.BlockMaps{}, fmt.Errorf("read the probes' objects: %w", err)
	}
	bpf.FitCPUs(probes, kernel, possible)
	bpf.DropDetails(probes) // record --for whatif needs 0.3 MiB more
	blocks := bpf.TakeBlockMaps(probes)
	watch, err := bpf.LoadProcess(kernel)
	if err != nil {
		return nil, bpf.BlockMaps{}, fmt.Errorf("read the process watch's objects: %w", err)
	}
	add := func(of string, spec *ebpf.CollectionSpec) {
		for name, m := range spec.Maps {
			if name[0] == '.' { // constants, which each object has
				name = of + name
			}
			if _, shared := maps[name]; !shared {
				maps[name] = bpf.MemoryOf(m, possible)
			}
		}
	}
	add("probes", probes)
	add("watch", watch)
	return maps, blocks, nil
}
