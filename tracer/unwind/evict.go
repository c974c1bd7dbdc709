// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"time"
)

// Evict drops what is kept of files that no process maps any more: Forget comes before it, and
// leaves the tables in the kernel for another minute. It calls forget with a function that reports
// whether a file is mapped, by NewFile.ID. onFile is called again with a file that forget may have
// closed, when a process maps it again. It also drops the problems of processes that have ended.
func (u *Unwinder) Evict(now time.Time, ended func(pid uint32) bool, forget func(mapped func(id string) bool)) {
	u.problems.forget(ended)
	u.mu.Lock()
	defer u.mu.Unlock() // no file comes meanwhile
	mapped := u.layouts.files()
	u.forgetPaths(u.codes.evict(now, mapped))
	ids := u.codes.ids(mapped)
	forget(func(id string) bool { return ids[id] })
}

// Sizes is how much an Unwinder keeps.
type Sizes struct {
	Layouts, Waiting, Files, Processes, Rows, Rules int
}

// Sizes returns how much is kept: layouts, those that wait for space, files that are known,
// processes with a layout, rows of tables in the kernel, and the rules that they share.
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

// Room is how much of a table in the kernel is taken that unwind tables share.
type Room struct {
	Name       string // "files", "rows", "pages of code" or "rules"
	Used, Size int
}

// Rooms returns how much is taken of each table that unwind tables share, how often a file had no
// room since the start, and a sentence about a process that lacks tables now; "" if none does.
func (u *Unwinder) Rooms() (list []Room, refused uint64, example string) {
	s := u.tables.shares
	for i, n := range s.used() {
		list = append(list, Room{amountNames[i], n, s.tables[i].Size()})
	}
	if texts := s.refused(1); len(texts) > 0 {
		example = texts[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return list, s.refusals, example
}
