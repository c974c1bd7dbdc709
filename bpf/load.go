// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// CanGuard reports whether programs can disable preemption (bpf_preempt_disable, Linux 6.10) and
// call global functions meanwhile, which kernels before 6.15 forbid; bpf_res_spin_lock came with
// 6.15. From Linux 6.13 on, preempted programs lose data without the guard.
func CanGuard(kernel *btf.Spec) bool {
	var f *btf.Func
	return kernel.TypeByName("bpf_preempt_disable", &f) == nil && kernel.TypeByName("bpf_res_spin_lock", &f) == nil
}

// Cookies reports whether the kernel's probes support attach cookies (bpf_get_attach_cookie, Linux
// 5.15).
func Cookies(kernel *btf.Spec) bool {
	var helpers *btf.Enum
	return kernel.TypeByName("bpf_func_id", &helpers) == nil && slices.ContainsFunc(helpers.Values,
		func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_get_attach_cookie" })
}

// GrowingMaps reports whether a hash map that a uprobe program changes may allocate memory as it
// fills (Linux 6.1). Older kernels log a warning when a program with such a map is loaded.
func GrowingMaps(kernel *btf.Spec) bool {
	var s *btf.Struct
	return kernel.TypeByName("bpf_mem_alloc", &s) == nil
}

// entriesOnOlder is the number of entries of growing maps on kernels without GrowingMaps: 68 MiB.
var entriesOnOlder = map[string]uint32{"blocks": 1 << 19, "tensor_devices": 256, "host_tensor_devices": 1024, "shares": 8192, "threads": 1 << 15}

// reserve makes the growing maps of spec preallocate their memory on kernels without GrowingMaps.
func reserve(spec *ebpf.CollectionSpec, kernel *btf.Spec) {
	if GrowingMaps(kernel) {
		return
	}
	for name, entries := range entriesOnOlder {
		if m := spec.Maps[name]; m != nil {
			m = withEntries(m)
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = entries
		}
	}
}

// LoadProbes returns the programs of the probes for a kernel: guarded against preemption if it
// CanGuard them, and without Cookies, reading the map "cookie" instead.
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

// LoadWalk returns the unwinder's steps for a kernel. The caller binds them to the unwinder's maps.
func LoadWalk(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	if CanGuard(kernel) { // as LoadProbes
		return loadFind()
	}
	return loadWalk()
}

// mappingIterator reports whether the kernel has an iterator over the mappings of all processes.
func mappingIterator(kernel *btf.Spec) bool {
	var context *btf.Struct
	return kernel.TypeByName("bpf_iter__task_vma", &context) == nil
}

// LoadProcess returns the programs that watch processes. It omits mapped_files and process_code on
// kernels without an iterator over mappings (before Linux 5.12).
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

// LiftMemlock removes the limit of locked memory of this process and its later children on kernels
// before Linux 5.11, which count maps and programs against it. It returns the former limit, or nil
// if it changed nothing.
func LiftMemlock(kernel *btf.Spec) (*unix.Rlimit, error) {
	if mappingIterator(kernel) { // Linux 5.12; no type identifies 5.11
		return nil, nil
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return nil, fmt.Errorf("read the limit of locked memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
		return nil, fmt.Errorf("lift the limit of locked memory, against which this kernel counts maps: %w (add CAP_SYS_RESOURCE)", err)
	}
	return &before, nil
}

// LoadMarked returns the program that proves how pages are read which NUMA balancing has marked. It
// has the variables that SetDirectMap sets, as the programs that walk stacks.
func LoadMarked() (*ebpf.CollectionSpec, error) { return loadMarked() }

// DirectMap is where the kernel has all memory in its own addresses; see marked_pages.h. The zero
// DirectMap reads no marked page.
type DirectMap struct {
	Levels uint32 // of page tables
	Symbol uint64 // address of the kernel's variable with the map's start; 0: it is Start
	End    uint64 // of physical memory, in pages
	Start  uint64 // on arm64, of the kernel's addresses; the variable has the first physical address

	// On arm64 only.
	PageBits uint32 // 12, 14 or 16: pages of 4, 16 or 64 KiB
	Mark     uint64 // bits of a marked entry of a page table
}

// SetDirectMap has the programs of spec read marked pages by m.
func SetDirectMap(spec *ebpf.CollectionSpec, m DirectMap) error {
	values := map[string]any{"page_table_levels": m.Levels, "direct_map_symbol": m.Symbol, "direct_map": m.Start, "memory_end": m.End}
	if m.PageBits != 0 {
		values["page_bits"], values["entry_mark"] = m.PageBits, m.Mark
	}
	for name, value := range values {
		v := spec.Variables[name]
		if v == nil {
			continue
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// DropDetails leaves out of spec what reads the details of blocks. Its maps take no memory.
func DropDetails(spec *ebpf.CollectionSpec) {
	spec.Maps["detailed_allocators"].MaxEntries, spec.Maps["block_layouts"].MaxEntries = 1, 1
	delete(spec.Programs, "block_detailed")
}
