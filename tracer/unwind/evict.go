// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"slices"
	"time"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
)

// Evict drops what is kept of files that no process maps any more: Forget comes before it, and
// leaves the tables in the kernel for another minute. It calls forget with a function that reports
// whether a file is mapped, by NewFile.ID. onFile is called again with a file that forget may have
// closed, when a process maps it again. It also drops the problems of processes that have ended.
func (u *Unwinder) Evict(now time.Time, ended func(pid uint32) bool, forget func(mapped func(id string) bool)) {
	u.guardMu.Lock()
	u.problems = slices.DeleteFunc(u.problems, func(x problem) bool { return x.pid != 0 && ended(x.pid) })
	u.guardMu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock() // no file comes meanwhile
	mapped := u.layouts.files()
	u.forgetPaths(u.codes.evict(now, mapped))
	ids := u.codes.ids(mapped)
	forget(func(id string) bool { return ids[id] })
}

// files returns the files of all layouts.
func (l *layouts) files() map[host.FileID]bool {
	mapped := map[host.FileID]bool{}
	for _, list := range l.bySum {
		for _, at := range list {
			for _, s := range at.spans {
				mapped[host.FileID(s.file)] = true
			}
		}
	}
	return mapped
}

// ids returns the ids of some files as in NewFile.
func (c *codes) ids(of map[host.FileID]bool) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := map[string]bool{}
	for id, known := range c.files {
		if of[id] {
			ids[known.id.StringNoQuotes()] = true
		}
	}
	return ids
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

// FileAt returns the kernel half's id of the file that a process maps as code at an address, and
// false if that is unknown. Any goroutine may call it.
func (u *Unwinder) FileAt(pid uint32, address uint64) (id uint64, ok bool) {
	s, ok := u.layouts.spanAt(pid, address)
	return s.file, ok
}

// Sizes is how much an Unwinder keeps.
type Sizes struct {
	Layouts, Waiting, Files, Processes, Rows, Rules int
}

// Sizes returns how much is kept: layouts, those that wait for space, files that are known, processes
// with a layout, rows of tables in the kernel, and the rules that they share.
func (u *Unwinder) Sizes() (s Sizes) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, list := range u.layouts.bySum {
		s.Layouts += len(list)
	}
	s.Waiting = len(u.layouts.waiting)
	u.layouts.mu.Lock()
	s.Processes = len(u.layouts.of)
	u.layouts.mu.Unlock()
	u.codes.mu.Lock()
	s.Files = len(u.codes.files)
	u.codes.mu.Unlock()
	used := u.tables.shares.used()
	s.Rows, s.Rules = used[ofRows], used[ofRules]
	return s
}

// TableBytes returns how much kernel memory the rows of all tables take. Only the kernel holds the
// maps with them: no file of this process does.
func (u *Unwinder) TableBytes() uint64 {
	return uint64(u.tables.shares.used()[ofRows]) * bytesOfRow
}
