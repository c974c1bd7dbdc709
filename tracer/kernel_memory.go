// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// KernelMemory is how much memory of the kernel tracing takes, in bytes: maps of BPF, and rings of events.
type KernelMemory struct {
	Least uint64 // from the beginning
	Most  uint64 // when every map is full
}

// CPUs counts the CPUs of this machine: those that it may ever have, and those that it has.
func CPUs() (possible, online int, err error) {
	if possible, err = ebpf.PossibleCPU(); err != nil {
		return 0, 0, fmt.Errorf("count the CPUs: %w", err)
	}
	if online, err = libraries.OnlineCPUs(); err != nil {
		return 0, 0, fmt.Errorf("count the CPUs: %w", err)
	}
	return possible, online, nil
}

// KernelMemoryFor computes what tracing takes on a machine with the running kernel and so many CPUs.
func KernelMemoryFor(possible, online int) (KernelMemory, error) {
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		return KernelMemory{}, err
	}
	maps, err := mapMemory(kernel, possible)
	if err != nil {
		return KernelMemory{}, err
	}
	var sum bpf.Memory
	for _, x := range maps {
		sum.Add(x)
	}
	least := sum.Reserved + sum.Caches + uint64(online)*(libraries.RingPages+1)*uint64(os.Getpagesize())
	return KernelMemory{least, least + sum.Growth}, nil
}

// mapMemory computes what each map takes, by name.
func mapMemory(kernel *btf.Spec, possible int) (map[string]bpf.Memory, error) {
	maps, err := unwind.Memory(kernel, possible)
	if err != nil {
		return nil, err
	}
	probes, err := bpf.LoadProbes(kernel)
	if err != nil {
		return nil, fmt.Errorf("read the probes' objects: %w", err)
	}
	bpf.FitCPUs(probes, kernel, possible)
	watch, err := bpf.LoadProcess(kernel)
	if err != nil {
		return nil, fmt.Errorf("read the process watch's objects: %w", err)
	}
	add := func(of string, spec *ebpf.CollectionSpec) {
		for name, m := range spec.Maps {
			if name[0] == '.' { // constants, of each
				name = of + name
			}
			if _, shared := maps[name]; !shared {
				maps[name] = bpf.MemoryOf(m, possible)
			}
		}
	}
	add("probes", probes)
	add("watch", watch)
	return maps, nil
}
