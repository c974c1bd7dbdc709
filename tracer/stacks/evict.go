// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"maps"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Unused is how long a stack is not used until each of the two steps. What is not booked yet counts
// as unused: events on their way, at most some seconds, and records of out-of-memory errors. A call
// that has begun and not returned counts as a use.
const Unused = time.Minute

// Forgotten is a stack of a process that the kernel half shall send again.
type Forgotten struct {
	ID  uint64
	PID uint32
}

// Evict takes what is in use now, and drops the stacks that were not for twice Unused. It returns
// those for which the kernel half shall forget that they were sent: their frames stay until a later
// call. dropped is how many went.
func (s *Store) Evict(now time.Time, inUse map[uint64]struct{}) (forget []Forgotten, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useParts(inUse)
	for id, x := range s.known {
		if _, used := inUse[id]; used {
			x.use(now)
			continue
		}
		if now.Sub(x.since) < Unused {
			continue
		}
		switch x.stage {
		case stageKept:
			x.stage, x.since = stageForgotten, now
			forget = append(forget, Forgotten{id, x.pid})
		case stageForgotten:
			s.drop(id, x)
			dropped++
		}
	}
	if dropped > len(s.known) { // a map keeps the memory of what it once had
		s.known = maps.Collect(maps.All(s.known))
		s.sharedRaw.known = maps.Collect(maps.All(s.sharedRaw.known))
		s.sharedNamed.known = maps.Collect(maps.All(s.sharedNamed.known))
	}
	return forget, dropped
}

// drop removes a stack; s.mu is held.
func (s *Store) drop(id uint64, x *stack) {
	s.sharedRaw.give(x.raw)
	s.sharedNamed.give(x.named)
	s.places.Give(x.pid)
	delete(s.known, id)
}

// Len returns how many stacks are kept.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// ForgetProcesses counts the stacks without room of processes that have ended as those of no one
// process.
func (s *Store) ForgetProcesses(ended map[uint32]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range s.unplaced.by {
		if ended[pid] {
			s.unplaced.forget(pid)
		}
	}
	for pid, n := range s.over {
		if ended[pid] {
			s.full += n
			delete(s.over, pid)
		}
	}
}

// ForgetPerfMaps drops the perf maps of processes that have ended.
func (s *Store) ForgetPerfMaps(ended func(pid uint32) bool) { s.symbols.ForgetPerfMaps(ended) }

// OpenFiles returns how many files are open for their names.
func (s *Store) OpenFiles() int { return s.symbols.Stats().Files }

// ForgetFiles closes the files that no stack needs for its names and that mapped does not report as
// still mapped, by unwind.NewFile.ID. No file may be added meanwhile. It also drops the mappings of
// files that no named stack has. It does nothing while a large file's names are read.
func (s *Store) ForgetFiles(mapped func(id string) bool) {
	if !s.naming.TryLock() {
		return
	}
	defer s.naming.Unlock()
	unnamed, named := s.users()
	s.symbols.ForgetFiles(func(id string) bool { return unnamed[id] || mapped(id) })
	maps.DeleteFunc(s.mappings, func(_ unwind.File, m *callstack.Mapping) bool { return !named[m] })
}

// users returns the files of the stacks without names, by their ids, and the mappings of the
// others.
func (s *Store) users() (unnamed map[string]bool, named map[*callstack.Mapping]bool) {
	s.mu.Lock()
	var raws []*copied[unwind.Frame]
	for _, list := range s.sharedRaw.known {
		raws = append(raws, list...)
	}
	var names []*copied[callstack.Frame]
	for _, list := range s.sharedNamed.known {
		names = append(names, list...)
	}
	s.mu.Unlock() // frames never change
	unnamed, named = map[string]bool{}, map[*callstack.Mapping]bool{}
	for _, c := range raws {
		for i := range c.frames {
			if f := c.frames[i].File; f != nil {
				unnamed[f.ID] = true
			}
		}
	}
	for _, c := range names {
		for i := range c.frames {
			if m := c.frames[i].Mapping; m != nil {
				named[m] = true
			}
		}
	}
	return unnamed, named
}
