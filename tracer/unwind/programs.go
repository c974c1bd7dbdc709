// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/pacmask"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// Programs of the chain that walks a stack.
const (
	nativeProgram = "kprobe_unwind_native"
	pythonProgram = "kprobe_unwind_python"
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

// filesWith returns how many files an outer map, such as exe_id_to_8_stack_deltas of tables with 2^8
// rows, must hold: maxRows bounds those with large tables.
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

// Bind replaces the maps and variables of spec that have names of the unwinder's by the unwinder's
// own. It returns the replacements for ebpf.CollectionOptions.
func (u *Unwinder) Bind(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if own, ok := u.maps[name]; ok && !strings.HasPrefix(name, ".") {
			spec.Maps[name] = u.spec.Maps[name].Copy()
			replacements[name] = own
		}
	}
	for name, v := range spec.Variables {
		if own, ok := u.spec.Variables[name]; ok {
			v.Value = own.Value
		}
	}
	return replacements
}

// Maps returns the unwinder's maps by name.
func (u *Unwinder) Maps() map[string]*ebpf.Map { return u.maps }

// LoadSteps loads the programs of walk.bpf.c into the chain. They record their reads in the map
// "recording" of probes. With multi, the programs have the attach type of uprobe_multi links: all
// programs of a chain must have one attach type.
func (u *Unwinder) LoadSteps(kernel *btf.Spec, probes map[string]*ebpf.Map, multi bool, types *btf.Cache) error {
	spec, err := bpf.LoadWalk(kernel)
	if err != nil {
		return fmt.Errorf("read the unwinder's steps: %w", err)
	}
	for name := range spec.Programs {
		if name != nativeProgram && name != pythonProgram {
			delete(spec.Programs, name)
		}
	}
	if multi {
		for _, program := range spec.Programs {
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	replacements := u.Bind(spec)
	for _, shared := range []string{"recording", "codes", "found_code"} {
		if spec.Maps[shared] != nil {
			spec.Maps[shared].MaxEntries = probes[shared].MaxEntries()
			replacements[shared] = probes[shared]
		}
	}
	python := spec.Copy()
	delete(python.Programs, nativeProgram)
	delete(spec.Programs, pythonProgram)
	options := bpf.Options(types, replacements)
	var native error
	var wait sync.WaitGroup
	wait.Go(func() { native = u.loadStep(spec, options, support.ProgUnwindNative, nativeProgram) })
	err = withFewerFrames(func(frames uint32) error {
		if err := python.Variables["python_frames_per_program"].Set(frames); err != nil {
			return fmt.Errorf("set python_frames_per_program: %w", err)
		}
		return u.loadStep(python, options, support.ProgUnwindPython, pythonProgram)
	})
	wait.Wait()
	return cmp.Or(native, err)
}

// pythonFrames is how many frames of Python the step walks per tail call, the preferred number first.
// The verifier's limit is a million instructions. Linux 5.10 and 6.1 need 539,507 for 6 frames, 206,470
// for 3 and 94,348 for 2; Ubuntu's 5.15.0-204 needs more than a million for 6.
var pythonFrames = [...]uint32{6, 3, 2}

// withFewerFrames calls load with the numbers of pythonFrames until the verifier does not give up.
func withFewerFrames(load func(frames uint32) error) (err error) {
	for _, frames := range pythonFrames {
		if err = load(frames); !errors.Is(err, unix.E2BIG) {
			return err
		}
	}
	return err
}

// loadStep loads the program of spec and links it as a step of the chain.
func (u *Unwinder) loadStep(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions, slot uint32, name string) error {
	step, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return fmt.Errorf("load the unwinder's steps: %w", err)
	}
	defer step.Close()
	return u.link(slot, step.Programs[name])
}

// LinkStop adds the last step of a walk, a program of the probes, to the chain.
func (u *Unwinder) LinkStop(stop *ebpf.Program) error { return u.link(support.ProgUnwindStop, stop) }

func (u *Unwinder) link(slot uint32, program *ebpf.Program) error {
	if err := u.maps["perf_progs"].Put(slot, uint32(program.FD())); err != nil {
		return fmt.Errorf("link step %d of the unwinder: %w", slot, err)
	}
	return nil
}
