// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/probepoint"
)

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

// hasWrapper reports whether a function of the table has probes of its own.
func (s *Set) hasWrapper(id uint64) bool {
	return slices.ContainsFunc(s.wrappers, func(w *wrapper) bool { return w.function() == id })
}

// Close detaches the probes.
func (s *Set) Close() { detach(s) }

// add takes a link of a set.
func (s *Set) add(l link.Link, isReturn bool) {
	if isReturn {
		s.returns = append(s.returns, l)
	} else {
		s.links = append(s.links, l)
	}
}

// maxDetaching is how many probes are detached at the same time: each takes a thread.
const maxDetaching = 256

// detach detaches the probes of all sets at the same time. For each link the kernel waits until no
// task runs in a probe, some 40 ms, or 0.1 s without uprobe_multi. Links that are closed at the same
// time wait together. The returns come last: a call whose return is not seen would count as the one
// around the thread's next calls.
func detach(sets ...*Set) {
	var entries, returns []func()
	for _, s := range sets {
		for _, l := range s.links {
			entries = append(entries, func() { l.Close() })
		}
		if s.reports != nil {
			entries = append(entries, func() { s.prober.reports.remove(s.reports) })
		}
		for _, w := range s.wrappers {
			entries = append(entries, func() { w.detach(s.prober.wrappers) })
		}
		for _, l := range s.returns {
			returns = append(returns, func() { l.Close() })
		}
	}
	atOnce(entries)
	atOnce(returns)
	for _, s := range sets {
		s.forget()
	}
}

// atOnce takes steps at the same time, at most maxDetaching.
func atOnce(steps []func()) {
	var wait sync.WaitGroup
	defer wait.Wait()
	todo := make(chan func(), len(steps))
	for _, step := range steps {
		todo <- step
	}
	close(todo)
	for range min(len(steps), maxDetaching) {
		wait.Go(func() {
			for step := range todo {
				step()
			}
		})
	}
}

// forget gives back what detached probes had of the kernel half's tables.
func (s *Set) forget() {
	for _, w := range s.wrappers {
		s.prober.wrappers.give(w.number)
	}
	if s.code != nil {
		s.prober.code.drop(s.code, s.prober.wrappers)
	}
	s.links, s.returns, s.reports, s.wrappers, s.code = nil, nil, nil, nil, nil
}

// Reports are the probes on PyTorch's reports of tensors in all files, which can be detached and attached
// again while all other probes stay, also those on its out-of-memory errors. Any goroutine may call its methods.
type Reports struct {
	prober *Prober

	mu     sync.Mutex // guards what follows; held while the kernel attaches and detaches, up to 0.1 s
	probes map[*reportProbe]bool
}

// reportProbe is the probes on the reports in one file.
type reportProbe struct {
	file       *os.File // opened with O_PATH, for executable
	executable *link.Executable
	at         targets
	pid        uint32      // as Set.pid
	links      []link.Link // none: detached
}

// Reports returns the probes on PyTorch's reports.
func (p *Prober) Reports() *Reports { return &p.reports }

// add attaches probes at targets in a file, which may be closed afterwards. They stay attached until the next
// Detach.
func (r *Reports) add(f *os.File, at targets, pid uint32) (*reportProbe, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open it again: %w", err)
	}
	x := &reportProbe{file: os.NewFile(uintptr(fd), path), at: at, pid: pid}
	if x.executable, err = link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		x.file.Close()
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.attach(x); err != nil {
		x.file.Close()
		return nil, err
	}
	if r.probes == nil {
		r.probes = map[*reportProbe]bool{}
	}
	r.probes[x] = true
	return x, nil
}

// attach attaches the probes of a file unless they are; r.mu is held.
func (r *Reports) attach(x *reportProbe) error {
	if len(x.links) > 0 {
		return nil
	}
	set := &Set{pid: x.pid}
	err := r.prober.attachAll(set, x.executable, r.prober.blockReported, x.at, false)
	x.links = set.links
	if err != nil {
		x.detach()
	}
	return err
}

func (x *reportProbe) detach() {
	for _, l := range x.links {
		l.Close()
	}
	x.links = nil
}

// remove detaches the probes of a file for good.
func (r *Reports) remove(x *reportProbe) {
	r.mu.Lock()
	delete(r.probes, x)
	r.mu.Unlock()
	x.detach()
	x.file.Close()
}

// Detach detaches the probes in all files, and returns when no thread runs their programs any more: the kernel
// waits up to 0.1 s, in which threads are not delayed. Files that are probed later have probes until
// the next Detach.
func (r *Reports) Detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var steps []func()
	for x := range r.probes {
		steps = append(steps, x.detach)
	}
	atOnce(steps)
}

// Attach attaches the probes again in all files. It returns the errors of those in which it fails, whose probes the
// next Attach tries again.
func (r *Reports) Attach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for x := range r.probes {
		errs = append(errs, r.attach(x))
	}
	return errors.Join(errs...)
}
