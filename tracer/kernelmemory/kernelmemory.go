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
	Least uint64 // at the start
	Most  uint64 // when every map is full
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
	maps, err := ByMap(kernel, possible)
	if err != nil {
		return Need{}, err
	}
	var sum bpf.Memory
	for _, x := range maps {
		sum.Add(x)
	}
	least := sum.Reserved + sum.Caches + uint64(online*(libraries.RingPages(online)+1)*os.Getpagesize())
	return Need{least, least + sum.Growth}, nil
}

// ByMap returns the memory of each map, by name. The names of an object's constants begin with
// "probes" or "watch".
func ByMap(kernel *btf.Spec, possible int) (map[string]bpf.Memory, error) {
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
	return maps, nil
}
