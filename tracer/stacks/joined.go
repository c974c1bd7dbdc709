// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"slices"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// threadMark stands between the frames of a thread and those of the call that created it.
const threadMark = "[thread created by]"

// Join returns the id of a stack that goes on with another one: the stack of a thread, and that of
// the call that created the thread. Without room for one more stack of the process, and with a part
// that is 0, it returns the first. Parts may be added later.
func (s *Store) Join(pid, user uint32, thread, maker uint64) uint64 {
	if thread == 0 || maker == 0 {
		return thread
	}
	id := joinedID(thread, maker)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.known[id]
	if x == nil {
		if !s.room(pid, user) {
			return thread
		}
		x = newStack(pid)
		s.known[id] = x
	} else if !x.isJoined() {
		return thread
	}
	x.parts = [2]uint64{thread, maker}
	x.use(s.now())
	return id
}

// joinedID mixes two ids. Both are hashes, keyed by the kernel half.
func joinedID(thread, maker uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15
	id := (thread ^ maker<<31 ^ maker>>33) * odd
	if id ^= id >> 29; id == 0 {
		return odd
	}
	return id
}

func (x *stack) isJoined() bool { return x != nil && x.parts[0] != 0 }

// maxJoined is how many stacks may be joined in turn: a thread whose maker's thread was made, and
// so on.
const maxJoined = 4

// partsOf returns the ids of which a stack consists, leaf first; s.mu is held.
func (s *Store) partsOf(id uint64) (list []uint64) {
	for range maxJoined {
		x := s.known[id]
		if !x.isJoined() {
			break
		}
		list = append(list, x.parts[0])
		id = x.parts[1]
	}
	return append(list, id)
}

// joined returns the frames of a joined stack, and false for any other. A maker that is unknown, or
// another thread's, is left out.
func (s *Store) joined(id uint64) ([]callstack.Frame, bool) {
	s.mu.Lock()
	is, parts := s.known[id].isJoined(), s.partsOf(id)
	s.mu.Unlock()
	if !is {
		return nil, false
	}
	var frames []callstack.Frame
	var thread []callstack.Frame
	for i, part := range parts {
		list := s.plain(part)
		if i > 0 && len(list) > 0 {
			if !runsCodeOf(thread, list[0].Mapping) {
				break
			}
			frames = append(frames, callstack.Frame{Function: threadMark, Mark: true})
		}
		frames = append(frames, list...)
		thread = list
	}
	return frames, true
}

// runsCodeOf reports whether a thread runs code of the file that made it, as far as the file is
// known. Otherwise it is another thread, which got the id of one that has ended.
func runsCodeOf(thread []callstack.Frame, file *callstack.Mapping) bool {
	return file == nil || slices.ContainsFunc(thread, func(f callstack.Frame) bool { return f.Mapping != nil && f.Mapping.Path == file.Path })
}

// useParts has the parts of joined stacks that are in use count as in use, too; s.mu is held.
func (s *Store) useParts(inUse map[uint64]struct{}) {
	var parts []uint64
	for id := range inUse {
		if s.known[id].isJoined() {
			parts = append(parts, s.partsOf(id)...)
		}
	}
	for _, id := range parts {
		inUse[id] = struct{}{}
	}
}
