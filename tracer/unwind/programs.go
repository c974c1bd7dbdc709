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
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// Programs of the chain that walks a stack.
const (
	nativeProgram = "kprobe_unwind_native"
	pythonProgram = "kprobe_unwind_python"
)

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
// programs of a chain must have one attach type. direct is how they read pages that NUMA balancing
// has marked.
func (u *Unwinder) LoadSteps(kernel *btf.Spec, probes map[string]*ebpf.Map, multi bool, types *btf.Cache, direct bpf.DirectMap) error {
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
	if err := bpf.SetDirectMap(spec, direct); err != nil {
		return err
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

// pythonFrames is how many frames of Python the step walks per tail call, the preferred number
// first. The verifier's limit is a million instructions. Linux 6.1 needs 571,245 for 6 frames, and
// 607,397 where it reads marked pages; before that, 5.10 and 6.1 needed 539,507 for 6 frames,
// 206,470 for 3 and 94,348 for 2; Ubuntu's 5.15.0-204 needs more than a million for 6.
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
