// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/times"
	"golang.org/x/sys/unix"
)

// CodeFile is a file that is mapped as code, as the kernel knows it, below overlays.
type CodeFile struct {
	Device  uint32 // the kernel's dev_t
	Inode   uint64
	Address uint64 // of the inode in the kernel's memory
	Size    uint64
	Changed uint64 // ns, of its content or its owner
}

// Code is what a process has mapped as code.
type Code struct {
	Files  map[uint64]CodeFile // by where the mapping begins
	Layout uint64              // by which the kernel's scan tells that processes have the same; 0: unknown
}

// Load brings the kernel's tables for one process up to date and returns when
// they are in place, with the number of the process's layout: what the kernel half has to have in its struct process; 0 where its
// stacks cannot be walked. It is cheap when no executable mapping changed. Processes
// that are gone are not an error, nor are files and memory that cannot be read, nor is it that there is no room: the
// stacks are cut or missing then, and Problems says why. layout is what a scan has just said of the process, 0 if unknown.
func (u *Unwinder) Load(pid uint32, layout uint64) (number uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.isBroken() || u.refused[pid] {
		return 0
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(pid)), memory: u.memoryOf(pid), u: u}
	if u.CodeOf != nil {
		if code, ok := u.CodeOf(pid); ok {
			p.code, layout = code, code.Layout
		}
	}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	u.judgePythons(p)
	_ = p.Close()
	u.tables.wait()
	over := u.layouts.draft.over
	u.codes.note(u.layouts.draft, p.code.Files)
	at := u.layouts.commit(pid, userOf(pid), layout)
	if over > 0 {
		u.problem(fmt.Sprintf("stacks of process %d are cut: its mappings need more than the %d entries that one process may have", pid, maxPrefixesOfProcess))
	}
	if at == nil {
		return 0
	}
	if at.number == 0 { // the layouts of before, which nobody has any more, may take the room
		u.layouts.sweep(u.inKernel())
		u.layouts.settle()
	}
	return at.number
}

func (u *Unwinder) inKernel() map[uint32]uint32 {
	if u.InKernel == nil {
		return nil
	}
	return u.InKernel()
}

// Share gives a process the layout that a scan has found it to have, if another process has the same one and its tables are loaded.
func (u *Unwinder) Share(pid uint32, layout uint64) (number uint32, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.layouts.byHash[layout]
	if at == nil || at.number == 0 || layout == 0 {
		return 0, false
	}
	u.layouts.join(pid, at, false)
	return at.number, true
}

// Adopt notes that the kernel half has given a process the layout of that number, its parent's; false if that is not loaded any more.
func (u *Unwinder) Adopt(pid, number uint32) bool { return u.layouts.adopt(pid, number) }

// learn makes the profiler know a process as one with a layout that is loaded: nothing of it is read for that. u.mu is held.
func (u *Unwinder) learn(pid uint32, at *layout) {
	if u.isBroken() || u.refused[pid] {
		return
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(pid)), memory: u.memoryOf(pid), u: u, like: at}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	u.layouts.draft = nil
	_ = p.Close()
	u.layouts.join(pid, at, true)
}

// Forget releases the tables of processes that have ended. Frames of their
// stacks cannot be asked for afterwards. It returns the pids of processes for whose tables there is room only now.
func (u *Unwinder) Forget() (settled []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := func(pid uint32) bool { return unix.Kill(int(pid), 0) == unix.ESRCH }
	u.forgetGuards()
	if u.isBroken() {
		return nil
	}
	inKernel := u.inKernel()
	for pid, number := range inKernel {
		u.layouts.adopt(pid, number)
	}
	for pid, at := range u.layouts.heirs(gone) {
		u.learn(pid, at)
	}
	u.layouts.forget(gone)
	u.layouts.sweep(inKernel)
	u.manager.CleanupPIDs()
	u.manager.ProcessedUntil(times.GetKTime())
	u.layouts.settle()
	settled, u.layouts.settled = u.layouts.settled, nil
	return settled
}
