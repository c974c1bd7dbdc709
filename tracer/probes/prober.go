// SPDX-License-Identifier: Apache-2.0

// Package probes sets probes into the files in which processes map CUDA's and PyTorch's functions,
// and takes them out again. A Prober has the kernel half's programs and attaches them to one file.
package probes

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/place"
)

// Prober attaches the kernel half's programs to functions of a file. Its methods may be called from
// any goroutine, but those that attach only after Wait has returned nil.
type Prober struct {
	loading  sync.WaitGroup
	errs     []error          // by step; valid after Wait, as is what follows
	programs *ebpf.Collection // nil if the kernel refused one
	stubs    *stubs           // nil where probes bear attach cookies

	allocEnter, callEnter, callReturn, libraryLoaded *ebpf.Program
	blockReported, blockFailed                       *ebpf.Program

	multi bool // the kernel has uprobe_multi links (6.6)
}

// Set is the probes of one file. A link that Go no longer references is closed by the garbage
// collector, so they are kept.
type Set struct {
	links     []link.Link
	functions []place.Function
}

// Functions returns the functions that are probed, which the caller must not change.
func (s *Set) Functions() []place.Function { return s.functions }

// Attach probes a library, which f is. The file stays open only during the call. Probes of one file
// are complete or absent.
func (p *Prober) Attach(f *os.File, l libraries.Mapped) (*Set, error) {
	if l.Layer != functions.Torch {
		return p.attach(f, l.Layer)
	}
	set, err := p.attachTorch(f)
	if errors.Is(err, errNoReports) {
		if version := torchVersion(l); version != "" {
			err = fmt.Errorf("PyTorch %s: %w", version, err)
		}
	}
	return set, err
}

// attach probes every function of the layer that the file has.
func (p *Prober) attach(f *os.File, layer functions.Layer) (*Set, error) {
	library, err := place.Open(f)
	if err != nil {
		return nil, err
	}
	found := library.Functions(functions.Names(layer, false))
	if len(found) == 0 {
		return nil, errors.New("it has none of the traced functions")
	}
	// The magic link leads to the opened file even when its name is gone.
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	set := &Set{functions: found}
	var allocations, others, returns targets
	for _, at := range found {
		id, row := functions.Named(at.Name, layer)
		if row.Role != functions.Initialises {
			returns.add(at.Probe, uint64(id))
		}
		if row.TakesStack() {
			allocations.add(at.Probe, uint64(id))
		} else {
			others.add(at.Probe, uint64(id))
		}
	}
	// Returns first: an entry without its return would leave a call open.
	for _, step := range []struct {
		program *ebpf.Program
		targets targets
	}{{p.callReturn, returns}, {p.callEnter, others}, {p.allocEnter, allocations}} {
		if err := p.attachAll(set, executable, step.program, step.targets, step.program == p.callReturn); err != nil {
			set.Close()
			return nil, err
		}
	}
	return set, nil
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
		l, err := attach(nil, program, &link.UprobeMultiOptions{Addresses: t.addresses, Cookies: t.cookies})
		if err != nil {
			return fmt.Errorf("attach %d probes at once: %w", len(t.addresses), err)
		}
		s.links = append(s.links, l)
		return nil
	}
	attach := x.Uprobe
	if isReturn {
		attach = x.Uretprobe
	}
	for i, address := range t.addresses {
		l, err := p.attachOne(attach, program, address, t.cookies[i])
		if err != nil {
			return fmt.Errorf("attach at %#x: %w", address, err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// attachOne attaches a program, or where probes bear no cookies a stub of it.
func (p *Prober) attachOne(attach func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error), program *ebpf.Program, address, cookie uint64) (link.Link, error) {
	if p.stubs == nil {
		return attach("probe", program, &link.UprobeOptions{Address: address, Cookie: cookie})
	}
	stub, err := p.stubs.of(program, cookie)
	if err != nil {
		return nil, err
	}
	defer stub.Close() // the probe holds it
	return attach("probe", stub, &link.UprobeOptions{Address: address})
}

// AttachBrief probes the functions of the layer that only tell what is current.
func (p *Prober) AttachBrief(f *os.File, layer functions.Layer) (*Set, error) {
	library, err := place.Open(f)
	if err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	set := &Set{functions: library.Functions(functions.Names(layer, true))}
	var all targets
	for _, at := range set.functions {
		id, _ := functions.Named(at.Name, layer)
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

// AttachLoader lets held processes stop when the dynamic loader f has loaded
// libraries.
func (p *Prober) AttachLoader(f *os.File) (*Set, error) {
	library, err := place.Open(f)
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

// Close detaches side by side: without uprobe_multi each probe takes about 0.1 s.
func (s *Set) Close() {
	var wait sync.WaitGroup
	for _, l := range s.links {
		wait.Go(func() { l.Close() })
	}
	wait.Wait()
	s.links = nil
}
