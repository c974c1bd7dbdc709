// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"github.com/vramprof/vramprof/bpf"
)

// StopProgram is the program that ends a stack walk. It is the only program of the unwinder among
// the probes.
const StopProgram = "kprobe_unwind_stop"

// Prepare sets the attach type of the programs in spec: uprobe_multi if the kernel has it (Linux
// 6.6). It reports whether it does.
func Prepare(spec *ebpf.CollectionSpec) (multi bool) {
	if features.HaveBPFLinkUprobeMulti() != nil {
		return false
	}
	// StopProgram must have the same attach type as the programs that tail-call it. library_loaded
	// must not be a perf event, because nothing else needs CAP_SYS_ADMIN.
	for _, name := range []string{"alloc_enter", "call_enter", "call_return", "block_reported", "block_failed", "library_loaded", "request_enter", "request_return", StopProgram} {
		spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
	}
	return true
}

// since reports whether the kernel is this version or a later one.
func since(major, minor uint32) bool {
	code, err := features.LinuxVersionCode()
	return err == nil && code >= major<<16|minor<<8
}

// Load starts to load the programs of spec, which use maps, and returns at once: the kernel
// verifies them while the caller reads the unwind tables of processes, which takes about as long.
// Load calls loaded with the loaded programs, and each of steps at once. These calls run in
// goroutines of their own; Wait waits for them.
func Load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache, multi bool,
	loaded func(map[string]*ebpf.Program) error, steps ...func() error) *Prober {
	p := &Prober{multi: multi, one: !multi || since(6, 10), errs: make([]error, 1+len(steps))}
	p.reports.prober = p
	p.code = runtimeCode{parts: maps["runtime_parts"], files: map[uint64]*codeOfFile{}}
	p.loading.Go(func() {
		if p.errs[0] = p.load(spec, maps, types); p.errs[0] == nil {
			p.errs[0] = loaded(p.programs)
		}
	})
	for i, step := range steps {
		p.loading.Go(func() { p.errs[1+i] = step() })
	}
	return p
}

func (p *Prober) load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache) (err error) {
	if p.programs, err = loadApart(spec, maps, types); err != nil {
		return fmt.Errorf("load the probes: %w", err)
	}
	by := p.programs
	p.allocEnter, p.callEnter, p.callReturn, p.libraryLoaded = by["alloc_enter"], by["call_enter"], by["call_return"], by["library_loaded"]
	p.blockReported, p.blockFailed = by["block_reported"], by["block_failed"]
	p.requestEnter, p.requestReturn = by["request_enter"], by["request_return"]
	if p.wrappers, err = newWrapperTable(maps["wrappers"]); err != nil {
		return err
	}
	if cookie := maps["cookie"]; cookie != nil {
		p.stubs, err = newStubs(cookie, p.allocEnter, p.callEnter, p.callReturn, p.blockReported, p.blockFailed, p.libraryLoaded, p.requestEnter, p.requestReturn)
	}
	return err
}

// loadApart loads all programs of spec at the same time: the verifier takes one processor for each.
func loadApart(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache) (map[string]*ebpf.Program, error) {
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	programs, rest := map[string]*ebpf.Program{}, *spec
	rest.Programs = nil
	for name, program := range spec.Programs {
		one := rest.Copy()
		one.Programs = map[string]*ebpf.ProgramSpec{name: program}
		wait.Go(func() {
			c, err := ebpf.NewCollectionWithOptions(one, bpf.Options(types, maps))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			defer c.Close()
			programs[name] = c.DetachProgram(name)
		})
	}
	wait.Wait()
	if len(errs) > 0 {
		closeAll(programs)
		return nil, errs[0]
	}
	return programs, nil
}

func closeAll(programs map[string]*ebpf.Program) {
	for _, program := range programs {
		program.Close()
	}
}

// Wait returns when all programs are loaded, or the first error.
func (p *Prober) Wait() error {
	p.loading.Wait()
	return cmp.Or(p.errs...)
}

// Programs returns the programs by name. It must follow a Wait without an error.
func (p *Prober) Programs() map[string]*ebpf.Program { return p.programs }

// Close waits like Wait, and unloads the programs. Attached probes keep theirs.
func (p *Prober) Close() {
	p.loading.Wait()
	p.stubs.close()
	p.wrappers.close()
	closeAll(p.programs)
}
