// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/times"
	"golang.org/x/sys/unix"
)

// CodeFile identifies a file that is mapped as code. It is the real file below overlayfs.
type CodeFile struct {
	Device  uint32 // the kernel's dev_t
	Inode   uint64
	Address uint64 // of the inode in the kernel's memory
	Size    uint64 // bytes
	Changed uint64 // ns, time of the last change of content or owner
}

// Code lists a process's mappings of code.
type Code struct {
	Files map[uint64]CodeFile // by start of the mapping
	// Hash of the mappings, equal for processes with equal mappings; 0: unknown.
	Layout uint64
}

// Load updates the kernel's tables for one process. When it returns, the tables are in the kernel.
// It returns the number of the process's layout, for the kernel half's struct process; 0 means that
// its stacks cannot be walked. layout is the hash of a scan that has just seen the process; 0 if
// unknown. Load is cheap if no executable mapping has changed. Ended processes, unreadable files or
// memory, and full tables are not errors: stacks are then truncated or missing, and Problems tells
// why.
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
	for _, f := range u.codes.note(u.layouts.draft, p.code.Files) {
		u.tellFile(f.id, f.buildID, f.mapping)
	}
	at := u.layouts.commit(pid, userOf(pid), layout)
	if over > 0 {
		u.problemOf(pid, fmt.Sprintf("stacks of process %d are truncated: its mappings need more than the %d entries that one process may have", pid, maxPrefixesOfProcess))
	}
	if at == nil {
		return 0
	}
	if at.number == 0 { // unused layouts may occupy the space
		u.layouts.sweep(u.inKernel())
		u.layouts.settle()
	}
	return at.number
}

// inKernel returns InKernel's numbers of layouts by pid, or nil.
func (u *Unwinder) inKernel() map[uint32]uint32 {
	if u.InKernel == nil {
		return nil
	}
	return u.InKernel()
}

// Share assigns a process the layout with a hash that a scan has computed, if that layout is loaded
// for another process. It returns the layout's number.
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

// Adopt notes that the kernel half has assigned a process its parent's layout, by number. It
// returns false if that layout is no longer loaded.
func (u *Unwinder) Adopt(pid, number uint32) bool { return u.layouts.adopt(pid, number) }

// learn registers a process that has a loaded layout with the profiler, without reading from the
// process. u.mu is held.
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

// Forget releases the tables of processes that have ended. Their stacks cannot be decoded
// afterwards. It returns the pids of processes that Load is to be called for again: their layouts had
// to wait for space and are loaded, or there was no room for the tables of their files.
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
	return append(settled, u.tables.shares.retry(time.Now())...)
}
