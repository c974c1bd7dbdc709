// SPDX-License-Identifier: Apache-2.0

// Package probes attaches probes to the files that contain CUDA's and PyTorch's functions, and
// detaches them. A Prober loads the kernel half's programs and attaches them to one file. Files
// decides which files are probed and for how long, a Learner attaches brief probes that report
// devices, and Unseen counts the files that were in use before they were probed. Resolve and
// Libraries look up functions without attaching anything.
package probes

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
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
	for _, name := range []string{"alloc_enter", "call_enter", "call_return", "block_reported", "block_detailed", "block_failed", "library_loaded", "request_enter", "request_return", StopProgram} {
		if program := spec.Programs[name]; program != nil { // block_detailed is rarely wanted
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
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
	p.reports.prober, p.reports.kind = p, maps["reports_apart"]
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
	if detailed := by["block_detailed"]; detailed != nil {
		if err := maps["report_program"].Put(uint32(0), p.blockReported); err != nil {
			return fmt.Errorf("connect the probes on PyTorch's reports: %w", err)
		}
		p.blockReported = detailed
	}
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
