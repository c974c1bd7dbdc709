// SPDX-License-Identifier: Apache-2.0

// Package intervals implements sets of address ranges that never overlap, each with a value.
package intervals

import (
	"iter"
	"slices"
	"sort"
)

// Interval is the address range [Start, End). It is not empty.
type Interval[V any] struct {
	Start, End uint64
	Value      V
}

// Size returns the bytes of the interval.
func (x *Interval[V]) Size() uint64 { return x.End - x.Start }

// Set is a set of intervals, sorted by address. The zero Set is empty. The intervals lie in
// chunks, so that a change among 100,000 of them moves a few KiB and not megabytes.
type Set[V any] struct {
	chunks [][]Interval[V] // none is empty
	n      int
}

const maxChunk = 128 // intervals

// Len returns the number of intervals.
func (s *Set[V]) Len() int { return s.n }

// seek returns the position of the first interval that ends above the address.
func (s *Set[V]) seek(address uint64) (chunk, i int) {
	chunk = sort.Search(len(s.chunks), func(k int) bool {
		c := s.chunks[k]
		return c[len(c)-1].End > address
	})
	if chunk < len(s.chunks) {
		c := s.chunks[chunk]
		i = sort.Search(len(c), func(k int) bool { return c[k].End > address })
	}
	return chunk, i
}

// At returns the interval that contains the address, nil without one. Insert and the Cut methods
// invalidate the pointer.
func (s *Set[V]) At(address uint64) *Interval[V] {
	chunk, i := s.seek(address)
	if chunk == len(s.chunks) || s.chunks[chunk][i].Start > address {
		return nil
	}
	return &s.chunks[chunk][i]
}

// From returns the intervals that end above the address, in order. Insert and the Cut methods must
// not be called during the iteration.
func (s *Set[V]) From(address uint64) iter.Seq[*Interval[V]] {
	return func(yield func(*Interval[V]) bool) {
		chunk, i := s.seek(address)
		for ; chunk < len(s.chunks); chunk, i = chunk+1, 0 {
			for ; i < len(s.chunks[chunk]); i++ {
				if !yield(&s.chunks[chunk][i]) {
					return
				}
			}
		}
	}
}

// Overlap returns the intervals that overlap [start, end), in order. Insert and the Cut methods
// must not be called during the iteration.
func (s *Set[V]) Overlap(start, end uint64) iter.Seq[*Interval[V]] {
	return func(yield func(*Interval[V]) bool) {
		for x := range s.From(start) {
			if x.Start >= end || !yield(x) {
				return
			}
		}
	}
}

// Overlaps reports whether an interval overlaps [start, end).
func (s *Set[V]) Overlaps(start, end uint64) bool {
	chunk, i := s.seek(start)
	return chunk < len(s.chunks) && s.chunks[chunk][i].Start < end
}

// EndBefore returns the end of the last interval that ends at or below the address, 0 without one.
func (s *Set[V]) EndBefore(address uint64) uint64 {
	chunk, i := s.seek(address)
	switch {
	case i > 0:
		return s.chunks[chunk][i-1].End
	case chunk > 0:
		c := s.chunks[chunk-1]
		return c[len(c)-1].End
	}
	return 0
}

// Insert adds an interval. It must not be empty or overlap another one.
func (s *Set[V]) Insert(x Interval[V]) {
	s.n++
	chunk, i := s.seek(x.Start)
	if chunk == len(s.chunks) {
		if chunk == 0 {
			s.chunks = append(s.chunks, nil)
		} else {
			chunk--
		}
		i = len(s.chunks[chunk])
	}
	c := slices.Insert(s.chunks[chunk], i, x)
	s.chunks[chunk] = c
	if len(c) > maxChunk {
		half := len(c) / 2
		s.chunks[chunk] = c[:half:half]
		s.chunks = slices.Insert(s.chunks, chunk+1, slices.Clone(c[half:]))
	}
}

// Cut removes and returns the intervals that overlap [start, end).
func (s *Set[V]) Cut(start, end uint64) []Interval[V] { return s.cut(start, end, true) }

// CutInside removes and returns the intervals that lie entirely inside [start, end).
func (s *Set[V]) CutInside(start, end uint64) []Interval[V] { return s.cut(start, end, false) }

func (s *Set[V]) cut(start, end uint64, partly bool) (list []Interval[V]) {
	chunk, i := s.seek(start)
	if !partly && chunk < len(s.chunks) && s.chunks[chunk][i].Start < start {
		if i++; i == len(s.chunks[chunk]) {
			chunk, i = chunk+1, 0
		}
	}
	for chunk < len(s.chunks) {
		c := s.chunks[chunk]
		to := i
		for to < len(c) && c[to].Start < end && (partly || c[to].End <= end) {
			to++
		}
		if to == i {
			break
		}
		list = append(list, c[i:to]...)
		if to-i == len(c) {
			s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
			continue
		}
		last := to < len(c)
		s.chunks[chunk] = slices.Delete(c, i, to)
		if last {
			break
		}
		chunk, i = chunk+1, 0
	}
	s.n -= len(list)
	return list
}
