// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Reports are the probes on PyTorch's reports of tensors in all files, which can be detached from
// single processes and attached again while all other probes stay, also those on its out-of-memory
// errors. Any goroutine may call its methods.
//
// # One link for all processes, or one for each
//
// A uprobe has a filter for one process, and none that leaves one out. A program that returns at
// once is no pause either: the trap is the price. So a pause of one process needs a link for each
// of the others. Measured on Linux 6.18, 2 processors (AMD, mitigations on):
//
//   - Each link on a function costs each hit in any process: 85 ns (uprobe_multi) or 200 ns (perf
//     events), where an empty probe takes 1,000 to 2,000 ns.
//   - To attach one takes 7 to 15 ms, and to detach it 40 to 60 ms (100 to 120 ms with perf
//     events), in which nobody but the caller waits. Links that are detached at once wait together.
//   - A link is one file descriptor.
//
// So one link has all processes until the first of them is to be paused. Then each process gets its
// own, and the common one goes, until Join. The kernel half counts links of one kind, and changes
// the kind at one moment. So at most reports that are in the trap at that moment are lost or
// counted twice. With more than maxReporting processes, and on Linux 6.6 to 6.9, whose uprobe_multi
// has filters for threads only, all processes are paused together.
type Reports struct {
	prober *Prober
	kind   *ebpf.Map // of links that count

	mu     sync.Mutex // guards what follows; held while the kernel attaches and detaches, up to 0.1 s
	probes map[*reportProbe]bool
	apart  bool            // each process has links of its own
	away   bool            // otherwise: all are paused
	paused map[uint32]bool // processes without links
}

// maxReporting is how many processes have links of their own.
const maxReporting = 64

// reportProbe is the probes on the reports in one file.
type reportProbe struct {
	file       *os.File // opened with O_PATH, for executable
	executable *link.Executable
	at         targets
	pid        uint32      // as Set.pid
	links      []link.Link // of all processes, or of pid; none: detached
	own        map[uint32]reporting
}

// reporting is a process that maps a file with reports.
type reporting struct {
	started uint64      // as procfs.StartTicks: its pid may be used again
	links   []link.Link // none: the common ones see it, or it is paused
}

// Reports returns the probes on PyTorch's reports.
func (p *Prober) Reports() *Reports { return &p.reports }

// add attaches probes at targets in a file, which may be closed afterwards.
func (r *Reports) add(f *os.File, at targets, pid uint32) (*reportProbe, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open it again: %w", err)
	}
	x := &reportProbe{file: os.NewFile(uintptr(fd), path), at: at, pid: pid, own: map[uint32]reporting{}}
	if x.executable, err = executableOf(x.file); err != nil {
		x.file.Close()
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.apart || pid != 0 {
		if x.links, err = r.attach(x, pid); err != nil {
			x.file.Close()
			return nil, err
		}
	}
	if r.probes == nil {
		r.probes = map[*reportProbe]bool{}
	}
	r.probes[x] = true
	return x, nil
}

// mappedBy notes that a process maps the file of a probe. While each process has links of its own,
// it gets them.
func (r *Reports) mappedBy(x *reportProbe, pid uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	started := procfs.StartTicks(pid)
	if here, ok := x.own[pid]; x.pid != 0 || started == 0 || ok && here.started == started {
		return nil
	}
	if here, ok := x.own[pid]; ok { // of another process with its pid
		closeLinks(here.links)
		delete(r.paused, pid)
	}
	x.own[pid] = reporting{started: started}
	if !r.apart {
		return nil
	}
	return r.attachTo(x, pid)
}

// attach attaches the probes of a file, in one process or with pid 0 in all.
func (r *Reports) attach(x *reportProbe, pid uint32) ([]link.Link, error) {
	kind := uint64(0)
	switch {
	case x.pid != 0:
		kind = bpf.BlockAlways
	case pid != 0:
		kind = bpf.BlockApart
	}
	set, at := &Set{pid: pid}, targets{addresses: x.at.addresses}
	for _, cookie := range x.at.cookies {
		at.cookies = append(at.cookies, cookie|kind)
	}
	err := r.prober.attachAll(set, x.executable, r.prober.blockReported, at, false)
	if err != nil {
		closeLinks(set.links)
		return nil, err
	}
	return set.links, nil
}

// attachTo attaches a process's own links of a file, unless they are; r.mu is held.
func (r *Reports) attachTo(x *reportProbe, pid uint32) (err error) {
	here, ok := x.own[pid]
	if !ok || len(here.links) > 0 || r.paused[pid] {
		return nil
	}
	if here.links, err = r.attach(x, pid); err != nil {
		if !procfs.Exists(pid) {
			delete(x.own, pid)
			return nil
		}
		return fmt.Errorf("attach to reports of process %d: %w", pid, err)
	}
	x.own[pid] = here
	return nil
}

func closeLinks(list []link.Link) {
	for _, l := range list {
		l.Close()
	}
}

// remove detaches the probes of a file for good.
func (r *Reports) remove(x *reportProbe) {
	r.mu.Lock()
	delete(r.probes, x)
	r.mu.Unlock()
	steps := []func(){func() { closeLinks(x.links) }}
	for _, here := range x.own {
		steps = append(steps, func() { closeLinks(here.links) })
	}
	atOnce(steps)
	x.file.Close()
}

// CanPauseOne reports whether Detach pauses single processes.
func (r *Reports) CanPauseOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.prober.one || r.away {
		return false
	}
	reporting := map[uint32]bool{}
	for x := range r.probes {
		for pid := range x.own {
			reporting[pid] = true
		}
	}
	return len(reporting) <= maxReporting
}

// Forget forgets processes that have ended. It is to be called every few seconds.
func (r *Reports) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var steps []func()
	reporting := map[uint32]bool{}
	for x := range r.probes {
		reporting[x.pid] = true
		for pid, here := range x.own {
			if procfs.StartTicks(pid) == here.started {
				reporting[pid] = true
				continue
			}
			steps = append(steps, func() { closeLinks(here.links) })
			delete(x.own, pid)
		}
	}
	atOnce(steps)
	maps.DeleteFunc(r.paused, func(pid uint32, _ bool) bool { return !reporting[pid] })
}

// Detach detaches the probes from some processes, and returns when no thread of them runs their
// programs any more: the kernel waits up to 0.1 s, in which threads are not delayed.
func (r *Reports) Detach(pids []uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused == nil {
		r.paused = map[uint32]bool{}
	}
	for _, pid := range pids {
		r.paused[pid] = true
	}
	if err := r.part(); err != nil {
		return err
	}
	var steps []func()
	for x := range r.probes {
		for _, pid := range pids {
			if x.pid == pid {
				steps = append(steps, x.detach)
			}
			if here, ok := x.own[pid]; ok {
				steps = append(steps, func() { closeLinks(here.links) })
				x.own[pid] = reporting{started: here.started}
			}
		}
	}
	atOnce(steps)
	return nil
}

func (x *reportProbe) detach() {
	closeLinks(x.links)
	x.links = nil
}

// part gives each process that is not paused links of its own; r.mu is held.
func (r *Reports) part() error {
	if r.apart {
		return nil
	}
	for x := range r.probes {
		for pid := range x.own {
			if err := r.attachTo(x, pid); err != nil {
				r.drop(true)
				clear(r.paused)
				return err
			}
		}
	}
	if err := r.kind.Put(uint32(0), uint32(1)); err != nil {
		return err
	}
	r.apart = true
	r.drop(false)
	return nil
}

// drop detaches the links of single processes, or those of all; r.mu is held.
func (r *Reports) drop(own bool) {
	var steps []func()
	for x := range r.probes {
		switch {
		case own:
			for pid, here := range x.own {
				steps = append(steps, func() { closeLinks(here.links) })
				x.own[pid] = reporting{started: here.started}
			}
		case x.pid == 0:
			steps = append(steps, x.detach)
		}
	}
	atOnce(steps)
}

// Attach attaches the probes to processes again from which Detach detached them. It returns the
// errors of those in which it fails.
func (r *Reports) Attach(pids []uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, pid := range pids {
		delete(r.paused, pid)
		for x := range r.probes {
			if r.apart && x.pid == 0 {
				errs = append(errs, r.attachTo(x, pid))
			}
			if x.pid == pid && len(x.links) == 0 {
				list, err := r.attach(x, pid)
				x.links = list
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// DetachAll detaches the probes from all processes.
func (r *Reports) DetachAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var steps []func()
	for x := range r.probes {
		steps = append(steps, x.detach)
	}
	atOnce(steps)
	r.drop(true)
	r.away, r.apart = true, false
	clear(r.paused)
	_ = r.kind.Put(uint32(0), uint32(0))
}

// AttachAll attaches the probes to all processes again, as before the first Detach.
func (r *Reports) AttachAll() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.join()
}

// Join gives all processes one link again; none may be paused.
func (r *Reports) Join() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.paused) > 0 || !r.apart {
		return nil
	}
	return r.join()
}

func (r *Reports) join() error {
	var errs []error
	for x := range r.probes {
		if len(x.links) == 0 {
			list, err := r.attach(x, x.pid)
			x.links = list
			errs = append(errs, err)
		}
	}
	errs = append(errs, r.kind.Put(uint32(0), uint32(0)))
	r.apart, r.away = false, false
	r.drop(true)
	return errors.Join(errs...)
}
