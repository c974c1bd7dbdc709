// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// maxUnplaced is of how many stacks, of all processes, the first frame may wait for its file.
const maxUnplaced = 1 << 12

// unplaced are stacks whose first frame is in no known file, by process. That frame is in a probed
// function, so in a file: in a library that was loaded a moment before, and whose mapping is not
// read yet.
type unplaced struct {
	by     map[uint32]map[uint64]bool
	places quota.ByProcess // by process and user
}

func newUnplaced() unplaced {
	return unplaced{map[uint32]map[uint64]bool{}, quota.NewByProcess(maxUnplaced)}
}

func (u *unplaced) add(pid, user uint32, id uint64) {
	if u.by[pid][id] || !u.places.Take(pid, user) {
		return
	}
	if u.by[pid] == nil {
		u.by[pid] = map[uint64]bool{}
	}
	u.by[pid][id] = true
}

func (u *unplaced) remove(pid uint32, id uint64) {
	if !u.by[pid][id] {
		return
	}
	u.places.Give(pid)
	delete(u.by[pid], id)
	if len(u.by[pid]) == 0 {
		delete(u.by, pid)
	}
}

func (u *unplaced) forget(pid uint32) {
	for id := range u.by[pid] {
		u.remove(pid, id)
	}
}

func isUnplaced(frames []unwind.Frame) bool {
	return len(frames) > 0 && frames[0].JIT && frames[0].Function == ""
}

// Place finds the files of first frames of a process whose mappings were just read. What is not
// found waits for the next time.
func (s *Store) Place(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.unplaced.by[pid] {
		s.place(pid, id)
	}
}

// place finds the file of the first frame of one stack that waits; s.mu is held.
func (s *Store) place(pid uint32, id uint64) {
	x := s.known[id]
	if x == nil || x.pid != pid || x.raw == nil || !isUnplaced(x.raw.frames) {
		s.unplaced.remove(pid, id)
		return
	}
	first := x.raw.frames[0]
	if s.Locate(pid, &first); first.JIT {
		return
	}
	s.unplaced.remove(pid, id)
	frames := slices.Clone(x.raw.frames)
	frames[0] = first
	s.sharedRaw.give(x.raw)
	x.raw = s.sharedRaw.take(frames)
}

// Unplaced returns how many stacks wait, by pid.
func (s *Store) Unplaced() map[uint32]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make(map[uint32]uint64, len(s.unplaced.by))
	for pid, ids := range s.unplaced.by {
		list[pid] = uint64(len(ids))
	}
	return list
}

// Ended is told that a process has ended, or executes another program: its mappings are read no
// more, and another one may get its pid.
func (s *Store) Ended(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unplaced.forget(pid)
}
