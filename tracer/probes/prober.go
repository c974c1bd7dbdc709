// SPDX-License-Identifier: Apache-2.0

// Package probes attaches probes to the files that contain CUDA's and PyTorch's functions, and
// detaches them. A Prober loads the kernel half's programs and attaches them to one file. Files
// decides which files are probed and for how long, a Learner attaches brief probes that report
// devices, and Unseen counts the files that were in use before they were probed. Resolve and
// Libraries look up functions without attaching anything.
package probes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// Prober attaches the kernel half's programs to the functions in a file. Goroutines of its own load
// the programs. After Wait it is constant, and any goroutine may attach.
type Prober struct {
	loading  sync.WaitGroup
	errs     []error                  // by step; this and the fields below are valid after Wait
	programs map[string]*ebpf.Program // nil if the kernel rejected one
	stubs    *stubs                   // nil if the kernel supports attach cookies

	allocEnter, callEnter, callReturn, libraryLoaded *ebpf.Program
	blockReported, blockFailed                       *ebpf.Program
	requestEnter, requestReturn                      *ebpf.Program

	multi bool // the kernel has uprobe_multi links (Linux 6.6)
	one   bool // a link of one process also has its threads but the first: not so in Linux 6.6 to 6.9

	wrappers *wrapperTable
	code     runtimeCode
	reports  Reports
}

// Set is the probes in one file. It keeps the links because the garbage collector closes those that
// nothing references. It belongs to the goroutine that attached it.
type Set struct {
	links     []link.Link // of entries
	returns   []link.Link
	functions []probepoint.Function
	reports   *reportProbe // of PyTorch; nil without

	wrappers []*wrapper
	library  bool        // the file is a library
	code     *codeOfFile // nil until a wrapper's probes are detached
	unnamed  uint64      // calls of code.unnamed before
	prober   *Prober     // has code and the numbers of wrappers
	pid      uint32      // the only process that has the probes; 0: all have them
}

// Functions returns the probed functions. The caller must not change them.
func (s *Set) Functions() []probepoint.Function { return s.functions }

// CanAttachToOne reports whether functions can be probed in a single process.
func (p *Prober) CanAttachToOne() bool { return p.one }

// Attach probes the functions of l in its file f, which may be closed afterwards: in one process, or
// in all that map the file with pid 0. It attaches all probes or none.
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
	return library.Functions(append(cudaapi.Names(layer, false), cudaapi.Names(layer, true)...)), nil
}

// attach probes every function of the library's layer that the file has.
func (p *Prober) attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	found := library.Functions(cudaapi.Names(l.Layer, false))
	if len(found) == 0 {
		return nil, errors.New("it has none of the traced functions")
	}
	// This link leads to the opened file even if the file was deleted.
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
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

// takeWrappers gives the wrappers in the file probes of their own, as far as the kernel half's table
// has room.
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

// hasWrapper reports whether a function of the table has probes of its own.
func (s *Set) hasWrapper(id uint64) bool {
	return slices.ContainsFunc(s.wrappers, func(w *wrapper) bool { return w.function() == id })
}

type targets struct{ addresses, cookies []uint64 }

func (t *targets) add(address, cookie uint64) {
	t.addresses = append(t.addresses, address)
	t.cookies = append(t.cookies, cookie)
}

func (p *Prober) attachAll(s *Set, x *link.Executable, program *ebpf.Program, t targets, isReturn bool) error {
	if len(t.addresses) == 0 {
		return nil
	}
	if p.multi {
		attach := x.UprobeMulti
		if isReturn {
			attach = x.UretprobeMulti
		}
		l, err := attach(nil, program, &link.UprobeMultiOptions{Addresses: t.addresses, Cookies: t.cookies, PID: s.pid})
		if err != nil {
			return fmt.Errorf("attach %d probes at once: %w", len(t.addresses), err)
		}
		s.add(l, isReturn)
		return nil
	}
	attach := x.Uprobe
	if isReturn {
		attach = x.Uretprobe
	}
	for i, address := range t.addresses {
		l, err := p.attachOne(attach, program, link.UprobeOptions{Address: address, Cookie: t.cookies[i], PID: int(s.pid)})
		if err != nil {
			return fmt.Errorf("attach at %#x: %w", address, err)
		}
		s.add(l, isReturn)
	}
	return nil
}

// attachOne attaches a program, or a stub of it if the kernel has no attach cookies.
func (p *Prober) attachOne(attach func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error), program *ebpf.Program, at link.UprobeOptions) (link.Link, error) {
	if p.stubs == nil {
		return attach("probe", program, &at)
	}
	stub, err := p.stubs.of(program, at.Cookie)
	if err != nil {
		return nil, err
	}
	defer stub.Close() // the probe keeps it loaded
	at.Cookie = 0
	return attach("probe", stub, &at)
}

// AttachBrief probes the functions of a layer that report the current context or device, in processes
// as Attach does. Programs call them often, so these probes are attached only for a moment.
func (p *Prober) AttachBrief(f *os.File, layer cudaapi.Layer, pid uint32) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
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

// AttachLoader probes the dynamic loader f: held processes stop each time it has loaded libraries.
func (p *Prober) AttachLoader(f *os.File) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	found := library.Functions([]string{"_dl_debug_state"})
	if len(found) == 0 {
		return nil, errors.New("it has no _dl_debug_state")
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	set := &Set{functions: found}
	var at targets
	at.add(found[0].Probe, 0)
	if err := p.attachAll(set, executable, p.libraryLoaded, at, false); err != nil {
		return nil, fmt.Errorf("attach _dl_debug_state: %w", err)
	}
	return set, nil
}
