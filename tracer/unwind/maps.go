// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/pacmask"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// loadMaps returns the specs of the unwinder's maps for a machine with cpus possible CPUs.
func loadMaps(kernel *btf.Spec, interpreters *interpreterconfig.Config, cpus int) (*ebpf.CollectionSpec, error) {
	spec, err := support.LoadCollectionSpec()
	if err != nil {
		return nil, fmt.Errorf("read the unwinder's objects: %w", err)
	}
	reduce(spec, interpreters)
	bpf.FitCPUs(spec, kernel, cpus)
	if bpf.GrowingMaps(kernel) {
		grow(spec)
	}
	return spec, nil
}

// Memory computes the kernel memory of the maps, by name, on a machine with cpus possible CPUs. The
// tables of all files are in the growth of the map exe_id_to_8_stack_deltas.
func Memory(kernel *btf.Spec, cpus int) (map[string]bpf.Memory, error) {
	interpreters := interpreterconfig.NoInterpreters()
	interpreters.Python.Disabled = false
	spec, err := loadMaps(kernel, &interpreters, cpus)
	if err != nil {
		return nil, err
	}
	list := map[string]bpf.Memory{}
	for name, m := range spec.Maps {
		x := bpf.MemoryOf(m, cpus)
		if name == "exe_id_to_8_stack_deltas" { // all sizes share one limit
			x.Growth += maxRows * bytesOfRow
		}
		list[name] = x
	}
	return list, nil
}

// OfTables reports whether a map contains unwind tables, or the mappings of processes by which they
// are found.
func OfTables(name string) bool {
	return strings.HasPrefix(name, "exe_id_to_") || name == "stack_delta_page_to_info" || name == "pid_page_to_mapping_info"
}

// reduce removes the maps that native and Python stacks do not need, and sets the sizes of the
// others.
func reduce(spec *ebpf.CollectionSpec, interpreters *interpreterconfig.Config) {
	clear(spec.Programs)
	for name, m := range spec.Maps {
		switch {
		case !interpreters.IsMapEnabled(name):
			delete(spec.Maps, name)
		case name == "per_cpu_records_kp": // of another chain, which is not loaded
			delete(spec.Maps, name)
		case m.Type == ebpf.HashOfMaps:
			m.MaxEntries = filesWith(name)
			if size, ok := rowsIn(name); ok && size >= leastMapped {
				m.InnerMap.Flags |= unix.BPF_F_MMAPABLE
			}
		case name == "pid_page_to_mapping_info":
			m.MaxEntries = maxPrefixes
		case name == "py_procs":
			m.MaxEntries = maxPythons
		case name == "stack_delta_page_to_info":
			m.MaxEntries = maxPages
		case name == "unwind_info_array":
			m.MaxEntries = maxRules
		case m.Type == ebpf.RingBuf:
			m.MaxEntries = 4096 // trace_events: our last step has its own ring
		case name == "pid_events" || name == "reported_pids" || name == "traces_ctx_v1" || name == "sched_times":
			m.MaxEntries = 1 // of programs that are not loaded
		}
	}
}

// filesWith returns how many files an outer map, such as exe_id_to_8_stack_deltas of tables with
// 2^8 rows, must hold: maxRows bounds those with large tables.
func filesWith(outer string) uint32 {
	size, ok := rowsIn(outer)
	if !ok {
		return maxFiles
	}
	return uint32(min(maxFiles, maxRows>>size))
}

// rowsIn returns the binary logarithm of how many rows the tables in an outer map have.
func rowsIn(outer string) (size int, ok bool) {
	n, err := fmt.Sscanf(outer, "exe_id_to_%d_stack_deltas", &size)
	return size, n == 1 && err == nil
}

// leastMapped is the binary logarithm of how many rows a table has at least that is written through
// a mapping of its memory, which takes a tenth of the time of updates. The kernel's memory for
// smaller ones would grow by a page each.
const leastMapped = 14

const bytesOfRow = 8 // in the kernel: elements of an array are multiples of 8 bytes

// grow makes the large maps that only user space changes allocate their entries as they fill.
func grow(spec *ebpf.CollectionSpec) {
	for name, m := range spec.Maps {
		if name == "stack_delta_page_to_info" || name == "py_procs" || m.Type == ebpf.HashOfMaps {
			m.Flags |= unix.BPF_F_NO_PREALLOC
		}
	}
}

// setVariables sets the offset of a thread's TLS base in the running kernel's task_struct, and the
// mask of signed pointers.
func setVariables(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	offset, err := tlsBaseOffset(kernel)
	if err != nil {
		return fmt.Errorf("find the TLS base in task_struct: %w", err)
	}
	for name, value := range map[string]any{"tpbase_offset": offset, "inverse_pac_mask": ^pacmask.GetPACMask()} {
		v := spec.Variables[name]
		if v == nil {
			return fmt.Errorf("the unwinder has no variable %s", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// tlsBaseOffset returns the offset of the thread pointer in task_struct: thread.fsbase on x86-64,
// thread.uw.tp_value on arm64.
func tlsBaseOffset(kernel *btf.Spec) (uint64, error) {
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return 0, err
	}
	for _, path := range [][]string{{"thread", "fsbase"}, {"thread", "uw", "tp_value"}} {
		if offset, ok := fieldOffset(task, path); ok {
			return uint64(offset), nil
		}
	}
	return 0, fmt.Errorf("neither thread.fsbase nor thread.uw.tp_value exists")
}

func fieldOffset(t btf.Type, path []string) (uint32, bool) {
	if len(path) == 0 {
		return 0, true
	}
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		rest := path
		if m.Name == path[0] {
			rest = path[1:]
		} else if m.Name != "" {
			continue
		}
		if offset, ok := fieldOffset(m.Type, rest); ok {
			return m.Offset.Bytes() + offset, true
		}
	}
	return 0, false
}
