// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/times"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/deadline"
)

// SetCodes sets the kernel half's map "codes", which may be nil. It must be called before Load.
func (u *Unwinder) SetCodes(kernel *ebpf.Map) { u.codes.kernel = kernel }

// Load updates the kernel's tables for one process. When it returns, the tables are in the kernel.
// It returns the number of the process's layout, for the kernel half's struct process; 0 means that
// its stacks cannot be walked. layout is the hash of a scan that has just seen the process; 0 if
// unknown. Load is cheap if no executable mapping has changed. Ended processes, unreadable files or
// memory, and full tables are not errors: stacks are then truncated or missing, and Problems tells
// why.
func (u *Unwinder) Load(pid uint32, layout uint64) (number uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.broken.Load() || u.refused[pid] {
		return 0
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(procmem.Thread(int(pid)))), memory: u.memories.of(pid), u: u}
	if u.CodeOf != nil {
		if code, ok := u.CodeOf(pid); ok {
			p.code, layout = code, code.Layout
		}
	}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	for _, text := range u.pythons.unsupported(p.holdsPython) {
		u.problems.add(0, text)
	}
	_ = p.Close()
	u.tables.wait()
	over := u.layouts.draft.over
	for _, f := range u.codes.note(u.layouts.draft, p.code.Files) {
		u.tellFile(f.id, f.buildID, f.mapping)
	}
	at := u.layouts.commit(pid, userOf(pid), layout)
	if over > 0 {
		u.problems.add(pid, fmt.Sprintf("stacks of process %d are truncated: its mappings need more than the %d entries that one process may have", pid, maxPrefixesOfProcess))
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
	if u.broken.Load() || u.refused[pid] {
		return
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(procmem.Thread(int(pid)))), memory: u.memories.of(pid), u: u, like: at}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	u.layouts.draft = nil
	_ = p.Close()
	u.layouts.join(pid, at, true)
}

// ReportExecutable implements the process manager's callback for each new file, inside Load.
func (u *Unwinder) ReportExecutable(meta *reporter.ExecutableMetadata) {
	file, path := meta.MappingFile.Value(), strings.Clone(meta.Mapping.Path)
	u.fileMu.Lock()
	u.files[file.FileID] = path
	u.fileMu.Unlock()
	if dropped := u.codes.noteFile(file.FileID, path, file.GnuBuildID); len(dropped) > 0 {
		u.forgetPaths(dropped)
		u.epoch++
	}
	u.pythons.note(file.FileID, *meta.Mapping)
	u.tellFile(file.FileID, file.GnuBuildID, meta.Mapping)
}

// Forget releases the tables of processes that have ended. Their stacks cannot be decoded
// afterwards. It returns the pids of processes that Load is to be called for again: their layouts
// had to wait for space and are loaded, or there was no room for the tables of their files.
func (u *Unwinder) Forget() (settled []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := func(pid uint32) bool { return unix.Kill(int(pid), 0) == unix.ESRCH }
	for _, pid := range u.memories.forget(gone) {
		delete(u.refused, pid)
		u.tables.shares.forget(pid)
	}
	if u.broken.Load() {
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

// forgetPaths drops the paths of files that codes has dropped.
func (u *Unwinder) forgetPaths(dropped []*knownFile) {
	u.fileMu.Lock()
	defer u.fileMu.Unlock()
	for _, known := range dropped {
		delete(u.files, known.id)
	}
}

// tellFile calls onFile with a file that the process being loaded maps.
func (u *Unwinder) tellFile(id libpf.FileID, buildID string, m *process.RawMapping) {
	if u.onFile == nil || m.IsVDSO() {
		return
	}
	u.fileMu.RLock()
	path := u.files[id]
	u.fileMu.RUnlock()
	u.onFile(NewFile{ID: id.StringNoQuotes(), Path: path, BuildID: buildID, PID: u.loading, Start: m.Vaddr, End: m.Vaddr + m.Length})
}

var errBroken = errors.New("the unwinder has stopped")

// survive recovers from a panic in Load: the process is never loaded again. If the panic has left
// the process manager locked, the unwinder stops using it.
func (u *Unwinder) survive(pid uint32) {
	r := recover()
	if r == nil {
		return
	}
	u.refused[pid] = true
	u.problems.add(pid, fmt.Sprintf("stacks of process %d are truncated: read its files: panic: %v", pid, r))
	_, err := deadline.Call(time.Second, func() (bool, error) {
		u.manager.CleanupPIDs()
		u.manager.ProcessedUntil(0)
		return true, nil
	})
	if err != nil {
		u.broken.Store(true)
		u.problems.add(0, "the unwinder has stopped after an internal error: later stacks are missing")
	}
}
