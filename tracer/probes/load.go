// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// StopProgram is the last step of a walk, the only one of the unwinder's programs that is among the
// probes.
const StopProgram = "kprobe_unwind_stop"

// Prepare chooses how the programs in spec attach: by uprobe_multi links where the kernel has them
// (6.6), which multi reports.
func Prepare(spec *ebpf.CollectionSpec) (multi bool) {
	if features.HaveBPFLinkUprobeMulti() != nil {
		return false
	}
	// The unwinder's steps too: programs of one chain of tail calls must be of one attach type. The loader's
	// for another reason: a perf event would be the only thing that asks for CAP_SYS_ADMIN.
	for _, name := range []string{"alloc_enter", "call_enter", "call_return", "block_reported", "block_failed", "library_loaded", StopProgram} {
		spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
	}
	return true
}

// Load begins to bring the programs of spec into the kernel, and returns at once: their verification
// takes about as long as the unwind tables of a large process, and goes on beside them. Maps are those
// that the programs use. When the programs are in the kernel, loaded is called with them; steps are
// done beside. All of them run in goroutines of their own, which Wait waits for.
func Load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache, multi bool,
	loaded func(map[string]*ebpf.Program) error, steps ...func() error) *Prober {
	p := &Prober{multi: multi, errs: make([]error, 1+len(steps))}
	p.loading.Go(func() {
		if p.errs[0] = p.load(spec, maps, types); p.errs[0] == nil {
			p.errs[0] = loaded(p.programs.Programs)
		}
	})
	for i, step := range steps {
		p.loading.Go(func() { p.errs[1+i] = step() })
	}
	return p
}

func (p *Prober) load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache) (err error) {
	p.programs, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps, Cache: types})
	if err != nil {
		return fmt.Errorf("load the probes: %w", err)
	}
	by := p.programs.Programs
	p.allocEnter, p.callEnter, p.callReturn, p.libraryLoaded = by["alloc_enter"], by["call_enter"], by["call_return"], by["library_loaded"]
	p.blockReported, p.blockFailed = by["block_reported"], by["block_failed"]
	if cookie := maps["cookie"]; cookie != nil {
		p.stubs, err = newStubs(cookie, p.allocEnter, p.callEnter, p.callReturn, p.blockReported, p.blockFailed, p.libraryLoaded)
	}
	return err
}

// Wait returns when all programs are in the kernel, or are not going to be: of several reasons the
// first.
func (p *Prober) Wait() error {
	p.loading.Wait()
	return cmp.Or(p.errs...)
}

// Programs returns the programs by name, after Wait.
func (p *Prober) Programs() map[string]*ebpf.Program { return p.programs.Programs }

// Close waits, and removes the programs that no probe uses.
func (p *Prober) Close() {
	p.loading.Wait()
	p.stubs.close()
	if p.programs != nil {
		p.programs.Close()
	}
}
