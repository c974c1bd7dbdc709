// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// CanGuard says whether the kernel lets programs disable preemption
// (bpf_preempt_disable, Linux 6.10). Without it, on Linux 6.13 and later with
// preemption, programs can lose data; older kernels do not need it.
func CanGuard(kernel *btf.Spec) bool {
	var f *btf.Func
	return kernel.TypeByName("bpf_preempt_disable", &f) == nil
}

// Cookies says whether the kernel's probes can bear a number of ours
// (bpf_get_attach_cookie, Linux 5.15).
func Cookies(kernel *btf.Spec) bool {
	var helpers *btf.Enum
	return kernel.TypeByName("bpf_func_id", &helpers) == nil && slices.ContainsFunc(helpers.Values,
		func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_get_attach_cookie" })
}

// GrowingMaps says whether a hash map that a uprobe program changes may take its memory
// as it fills (Linux 6.1). To load a program with such a map makes older kernels warn.
func GrowingMaps(kernel *btf.Spec) bool {
	var s *btf.Struct
	return kernel.TypeByName("bpf_mem_alloc", &s) == nil
}

// entriesOnOlder is how much room growing maps have where GrowingMaps is not: 47 MiB.
var entriesOnOlder = map[string]uint32{"blocks": 1 << 19, "tensor_devices": 256, "host_tensor_devices": 1024, "shares": 8192}

// reserve lets the growing maps of spec take their memory from the beginning if the kernel needs that.
func reserve(spec *ebpf.CollectionSpec, kernel *btf.Spec) {
	if GrowingMaps(kernel) {
		return
	}
	for name, entries := range entriesOnOlder {
		if m := spec.Maps[name]; m != nil {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = entries
		}
	}
}

// LoadProbes returns the programs of the traced functions that suit the kernel: where it
// can guard them against preemption they are, and where it has no Cookies they look into the map "cookie" for them.
func LoadProbes(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	load := loadProbe
	switch {
	case CanGuard(kernel):
		load = loadGuarded
	case !Cookies(kernel):
		load = loadOlder
	}
	spec, err := load()
	if err != nil {
		return nil, err
	}
	reserve(spec, kernel)
	return spec, nil
}

// LoadWalk returns the unwinder's steps that suit the kernel, to be bound to the unwinder's maps.
func LoadWalk(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	if CanGuard(kernel) { // as the programs of LoadProbes
		return loadFind()
	}
	return loadWalk()
}

func mappingIterator(kernel *btf.Spec) bool {
	var context *btf.Struct
	return kernel.TypeByName("bpf_iter__task_vma", &context) == nil
}

// LoadProcess returns the programs that watch processes, without mapped_files and process_code where the
// kernel has no iterator over mappings (before Linux 5.12).
func LoadProcess(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	spec, err := loadProcess()
	if err != nil {
		return nil, err
	}
	if !mappingIterator(kernel) {
		delete(spec.Programs, "mapped_files")
		delete(spec.Programs, "process_code")
	}
	reserve(spec, kernel)
	return spec, nil
}

// LiftMemlock lets this process, and its later children, lock any amount of memory where maps and programs
// count against that limit: before Linux 5.11. It returns the limit as it was, nil where it stays.
func LiftMemlock(kernel *btf.Spec) (*unix.Rlimit, error) {
	if mappingIterator(kernel) { // 5.12; no type tells of 5.11
		return nil, nil
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return nil, fmt.Errorf("read the limit of locked memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
		return nil, fmt.Errorf("lift the limit of locked memory, which this old kernel counts maps against (CAP_SYS_RESOURCE is needed): %w", err)
	}
	return &before, nil
}
