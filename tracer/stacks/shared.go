// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"hash/maphash"
	"slices"
)

// shared keeps one copy of equal stacks: each process has stacks of its own, but a thousand
// processes of one program have the same frames.
type shared[F comparable] struct {
	seed  maphash.Seed
	known map[uint64][][]F // by hash
}

func newShared[F comparable]() shared[F] {
	return shared[F]{maphash.MakeSeed(), map[uint64][][]F{}}
}

// one returns the kept copy of frames, which nobody may change.
func (s *shared[F]) one(frames []F) []F {
	if len(frames) == 0 {
		return frames
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range frames {
		maphash.WriteComparable(&h, frames[i])
	}
	key := h.Sum64()
	for _, known := range s.known[key] {
		if slices.Equal(known, frames) {
			return known
		}
	}
	frames = slices.Clip(frames)
	s.known[key] = append(s.known[key], frames)
	return frames
}
