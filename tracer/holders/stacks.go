// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	maxTasks   = 4096
	maxStacks  = 4 << 20  // bytes of all stacks
	stackRoom  = 64 << 20 // a mapping that is larger is no stack
	guardRoom  = 1 << 20
	arenaStart = 64 << 20 // malloc's arenas begin at a multiple of it
	maxReach   = 1 << 14  // C and C++ objects that stacks lead to
	maxDeep    = 2        // from a stack
	maxWords   = 512      // of one of these objects
	tcache     = 0x288    // bytes of the list of free chunks that each thread has
)

// stackPointers returns those of the threads that wait in the kernel. A thread that runs keeps its
// own to itself.
func (p *Process) stackPointers() (pointers []uint64) {
	tasks, err := os.ReadDir(p.proc("task"))
	if err != nil {
		return nil
	}
	for _, task := range tasks[:min(len(tasks), maxTasks)] {
		text, err := os.ReadFile(p.proc(fmt.Sprintf("task/%s/syscall", task.Name())))
		if err != nil {
			continue
		}
		if sp, ok := parseSyscall(string(text)); ok {
			pointers = append(pointers, sp)
		}
	}
	return pointers
}

// parseSyscall returns the stack pointer of "0 0x3 0x7f10 0x400 0x0 0x0 0x0 0x7ffd10 0x7f20": the number
// of the call, arguments, the stack pointer, the program counter. It says "running" of a thread that runs.
func parseSyscall(text string) (uint64, bool) {
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return 0, false
	}
	sp, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-2], "0x"), 16, 64)
	return sp, err == nil && sp > 1<<16 && sp < addressEnd
}

// liveStacks returns the parts of the threads' stacks that are in use: from the stack pointer on, and
// of threads that ran all that is resident.
func (c *Copy) liveStacks() (stacks []span) {
	var known []uint64 // ends
	for _, sp := range c.pointers {
		if r, ok := regionAt(c.regions, sp); ok && r.own() && !slices.Contains(known, r.End) {
			known = append(known, r.End)
			stacks = append(stacks, span{sp &^ 7, r.End})
		}
	}
	for i, r := range c.regions {
		if slices.Contains(known, r.End) || r.Path != "[stack]" && (i == 0 || !isStack(c.regions[i-1], r)) {
			continue
		}
		from := r.End
		for from > r.Start && r.End-from < maxStacks && c.page(from-pageSize) != nil {
			from -= pageSize
		}
		if from < r.End {
			stacks = append(stacks, span{from, r.End})
		}
	}
	return cutStacks(stacks)
}

// cutStacks bounds all stacks together.
func cutStacks(stacks []span) []span {
	left := uint64(maxStacks)
	for i := range stacks {
		stacks[i].end = stacks[i].start + min(stacks[i].bytes(), left)
		left -= stacks[i].bytes()
	}
	return stacks
}

// isStack reports whether a mapping can be a thread's stack: anonymous, behind pages that may not be
// touched.
func isStack(guard, r Region) bool {
	return r.own() && r.Path == "" && r.End-r.Start <= stackRoom && r.Start%arenaStart != 0 &&
		guard.End == r.Start && !guard.Readable && !guard.Writable && guard.End-guard.Start <= guardRoom
}

// stackWalk finds out what the stacks of threads lead to, and what a word of memory is a part of.
type stackWalk struct {
	*search
	stacks []span          // the parts in use
	reach  map[uint64]bool // C and C++ objects, and Python's, that the stacks lead to
}

// run finds out which C and C++ objects the stacks of threads lead to.
func (s *stackWalk) run() {
	s.stacks, s.reach = s.py.liveStacks(), map[uint64]bool{}
	var level []uint64
	for _, stack := range s.stacks {
		level = s.follow(level, stack.start, stack.bytes()/8)
	}
	for range maxDeep {
		var next []uint64
		for _, a := range level {
			if s.py.late() || len(s.reach) > maxReach {
				return
			}
			next = s.follow(next, a, min(s.chunk(a)/8, maxWords))
		}
		level = next
	}
}

// follow notes what some words point to, and appends what can lead further.
func (s *stackWalk) follow(level []uint64, at, words uint64) []uint64 {
	for k := range words {
		v := s.py.u64(at + 8*k)
		if !pointer(v) || s.reach[v] || len(s.reach) > maxReach {
			continue
		}
		if r, ok := regionAt(s.py.regions, v); !ok || !r.own() || r.file() {
			continue
		}
		switch c := s.cpp.classOf(v); {
		case c.is(roleTensor):
			s.reach[v] = true
			s.reach[s.py.u64(v+s.storages.torch.storage)] = true
		case c.is(roleStorage) || s.py.typeOf(v) != nil:
			s.reach[v] = true
		case s.wholeChunk(v) && (c != nil || s.chunk(v) != tcache):
			s.reach[v] = true
			level = append(level, v)
		}
	}
	return level
}
