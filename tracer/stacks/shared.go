// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"hash/maphash"
	"slices"
)

// shared keeps one copy of equal stacks: each process has stacks of its own, but a thousand
// processes of one program have the same frames. A copy goes with its last user.
type shared[F comparable] struct {
	seed  maphash.Seed
	known map[uint64][]*copied[F] // by hash
}

// copied is one copy of frames, which nobody may change.
type copied[F comparable] struct {
	frames []F
	hash   uint64
	users  int // calls of take without their give
}

func newShared[F comparable]() shared[F] {
	return shared[F]{maphash.MakeSeed(), map[uint64][]*copied[F]{}}
}

// take returns the copy of frames, for one more user, which gives it back.
func (s *shared[F]) take(frames []F) *copied[F] {
	hash := s.hashOf(frames)
	for _, c := range s.known[hash] {
		if slices.Equal(c.frames, frames) {
			c.users++
			return c
		}
	}
	c := &copied[F]{frames: slices.Clip(frames), hash: hash, users: 1}
	s.known[hash] = append(s.known[hash], c)
	return c
}

// give takes a copy back from one user; nil is none.
func (s *shared[F]) give(c *copied[F]) {
	if c == nil {
		return
	}
	if c.users--; c.users > 0 {
		return
	}
	list := s.known[c.hash]
	if len(list) == 1 {
		delete(s.known, c.hash)
		return
	}
	s.known[c.hash] = slices.DeleteFunc(list, func(o *copied[F]) bool { return o == c })
}

func (s *shared[F]) hashOf(frames []F) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range frames {
		maphash.WriteComparable(&h, frames[i])
	}
	return h.Sum64()
}
