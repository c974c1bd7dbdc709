// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// CanAttachToOne reports whether functions can be probed in a single process.
func (p *Prober) CanAttachToOne() bool { return p.one }

// Attach probes the functions of l in its file f, which may be closed afterwards: in one process,
// or in all that map the file with pid 0. It attaches all probes or none.
func (p *Prober) Attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	if l.Layer != cudaapi.Torch {
		return p.attach(f, l, pid)
	}
	set, err := p.attachTorch(f, pid)
	if errors.Is(err, errNoReports) {
		if version := torchVersion(l); version != "" {
			err = fmt.Errorf("PyTorch %s: %w", version, err)
		}
	}
	return set, err
}

func (p *Prober) functions(f *os.File, layer cudaapi.Layer) ([]probepoint.Function, error) {
	return probedFunctions(f, layer)
}

// probedFunctions returns the functions that Attach and AttachBrief probe in a file.
func probedFunctions(f *os.File, layer cudaapi.Layer) ([]probepoint.Function, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	if layer == cudaapi.Torch {
		return library.Functions(slices.AppendSeq(slices.Clone(failureFunctions), maps.Keys(reportFunctions))), nil
	}
	return functionsOf(library, layer, append(cudaapi.Names(layer, false), cudaapi.Names(layer, true)...)), nil
}

// functionsOf finds functions of a layer: in NCCL, where it calls them.
func functionsOf(library *probepoint.Library, layer cudaapi.Layer, names []string) []probepoint.Function {
	if layer == cudaapi.NCCL {
		return library.Imports(names)
	}
	return library.Functions(names)
}

var errNoFunctions = errors.New("it has none of the traced functions")

// attach probes every function of the library's layer that the file has.
func (p *Prober) attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	found := functionsOf(library, l.Layer, cudaapi.Names(l.Layer, false))
	if len(found) == 0 {
		return nil, errNoFunctions
	}
	executable, err := executableOf(f)
	if err != nil {
		return nil, err
	}
	set := &Set{functions: found, prober: p, pid: pid}
	if pid == 0 {
		p.takeWrappers(set, l) // in single processes, their probes stay
	}
	var allocations, others, returns, requests targets
	for _, at := range found {
		id, row := cudaapi.Named(at.Name, l.Layer)
		if set.hasWrapper(uint64(id)) {
			continue
		}
		if row.Role == cudaapi.Requests {
			requests.add(at.Probe, uint64(id))
			continue
		}
		if row.Role != cudaapi.Initializes {
			returns.add(at.Probe, uint64(id))
		}
		if row.TakesStack() {
			allocations.add(at.Probe, uint64(id))
		} else {
			others.add(at.Probe, uint64(id))
		}
	}
	// Return probes come first: an entry without its return would leave a call open.
	for _, step := range []struct {
		program *ebpf.Program
		targets targets
	}{{p.callReturn, returns}, {p.requestReturn, requests}, {p.requestEnter, requests}, {p.callEnter, others}, {p.allocEnter, allocations}} {
		isReturn := step.program == p.callReturn || step.program == p.requestReturn
		if err := p.attachAll(set, executable, step.program, step.targets, isReturn); err != nil {
			set.Close()
			return nil, err
		}
	}
	for _, w := range set.wrappers {
		if err := p.attachWrapper(executable, w); err != nil {
			set.Close()
			return nil, err
		}
	}
	return set, nil
}

// takeWrappers gives the wrappers in the file probes of their own, as far as the kernel half's
// table has room.
func (p *Prober) takeWrappers(set *Set, l libraries.Mapped) {
	set.library = !l.Program
	for _, at := range set.functions {
		id, row := cudaapi.Named(at.Name, l.Layer)
		if !row.IsWrapper() || at.Size == 0 {
			continue
		}
		number := p.wrappers.take()
		if number == 0 {
			return
		}
		w := &wrapper{number: number, at: at, cookie: uint64(id) | uint64(number)<<bpf.WrapperShift, program: p.callEnter}
		if row.TakesStack() {
			w.program = p.allocEnter
		}
		set.wrappers = append(set.wrappers, w)
	}
}

// attachWrapper attaches the probes of w: the return first, as an entry without its return would
// leave a call open.
func (p *Prober) attachWrapper(x *link.Executable, w *wrapper) (err error) {
	var at targets
	at.add(w.at.Probe, w.cookie)
	var probes Set
	defer func() {
		if err != nil {
			probes.Close()
			w.entered, w.exits = nil, nil
		}
	}()
	if err := p.attachAll(&probes, x, p.callReturn, at, true); err != nil {
		return err
	}
	if err := p.attachAll(&probes, x, w.program, at, false); err != nil {
		return err
	}
	w.exits, w.entered = probes.returns[0], probes.links[0]
	w.stage, w.seen = stageProbed, p.wrappers.calls(w.number)
	return nil
}

// executableOf opens a file for probes, even if its path is gone.
func executableOf(f *os.File) (*link.Executable, error) {
	return link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// AttachBrief probes the functions of a layer that report the current context or device, in
// processes as Attach does. Programs call them often, so these probes are attached only for a
// moment.
func (p *Prober) AttachBrief(f *os.File, layer cudaapi.Layer, pid uint32) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	executable, err := executableOf(f)
	if err != nil {
		return nil, err
	}
	set := &Set{functions: library.Functions(cudaapi.Names(layer, true)), pid: pid}
	var all targets
	for _, at := range set.functions {
		id, _ := cudaapi.Named(at.Name, layer)
		all.add(at.Probe, uint64(id))
	}
	if err := p.attachAll(set, executable, p.callReturn, all, true); err != nil {
		set.Close()
		return nil, err
	}
	if err := p.attachAll(set, executable, p.callEnter, all, false); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}

// loaderFunctions finds the function of a dynamic loader that AttachLoader probes.
func (*Prober) loaderFunctions(f *os.File) ([]probepoint.Function, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	found := library.Functions([]string{"_dl_debug_state"})
	if len(found) == 0 {
		return nil, errors.New("it has no _dl_debug_state")
	}
	return found, nil
}

// AttachLoader probes the dynamic loader f: held processes stop each time it has loaded libraries.
// It probes it in one process, or in all with pid 0.
func (p *Prober) AttachLoader(f *os.File, pid uint32) (*Set, error) {
	found, err := p.loaderFunctions(f)
	if err != nil {
		return nil, err
	}
	executable, err := executableOf(f)
	if err != nil {
		return nil, err
	}
	set := &Set{functions: found, pid: pid}
	var at targets
	at.add(found[0].Probe, 0)
	if err := p.attachAll(set, executable, p.libraryLoaded, at, false); err != nil {
		return nil, fmt.Errorf("attach _dl_debug_state: %w", err)
	}
	return set, nil
}
