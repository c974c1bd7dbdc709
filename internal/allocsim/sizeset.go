// SPDX-License-Identifier: Apache-2.0

package allocsim

import "sort"

// entry is a free block in a sizeSet: its key, and its node.
type entry struct {
	size, at uint64
	node     int32
}

// less orders by size, then address. Nodes only make keys unique where addresses overlap, which a
// hostile trace can claim.
func (e entry) less(o entry) bool {
	if e.size != o.size {
		return e.size < o.size
	}
	if e.at != o.at {
		return e.at < o.at
	}
	return e.node < o.node
}

const chunkSize = 64

type chunk struct {
	n       int
	entries [chunkSize]entry
}

// sizeSet is the free blocks of one pool and stream, sorted. It is a list of sorted chunks: a block
// is found by two binary searches, and moves at most a chunk.
type sizeSet struct {
	chunks []*chunk
	spare  []*chunk
}

// position is a place in a sizeSet, valid until its next change.
type position struct{ chunk, index int }

func (s *sizeSet) lower(e entry) position {
	c := sort.Search(len(s.chunks), func(i int) bool {
		c := s.chunks[i]
		return !c.entries[c.n-1].less(e)
	})
	if c == len(s.chunks) {
		return position{c, 0}
	}
	return position{c, s.chunks[c].lower(e)}
}

func (c *chunk) lower(e entry) int {
	lo, hi := 0, c.n
	for lo < hi {
		if m := (lo + hi) / 2; c.entries[m].less(e) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (s *sizeSet) valid(p position) bool { return p.chunk < len(s.chunks) && p.chunk >= 0 }

func (s *sizeSet) at(p position) entry { return s.chunks[p.chunk].entries[p.index] }

func (s *sizeSet) next(p position) position {
	if p.index+1 < s.chunks[p.chunk].n {
		return position{p.chunk, p.index + 1}
	}
	return position{p.chunk + 1, 0}
}

// before returns the place before p, which may be the end. Before the first one it is not valid.
func (s *sizeSet) before(p position) position {
	if p.index > 0 {
		return position{p.chunk, p.index - 1}
	}
	if p.chunk == 0 {
		return position{-1, 0}
	}
	return position{p.chunk - 1, s.chunks[p.chunk-1].n - 1}
}

func (s *sizeSet) insert(e entry) {
	if len(s.chunks) == 0 {
		c := s.fresh()
		c.entries[0], c.n = e, 1
		s.chunks = append(s.chunks, c)
		return
	}
	p := s.lower(e)
	if p.chunk == len(s.chunks) {
		p = position{p.chunk - 1, s.chunks[p.chunk-1].n}
	}
	c := s.chunks[p.chunk]
	if c.n == chunkSize {
		half := s.fresh()
		half.n = copy(half.entries[:], c.entries[chunkSize/2:])
		c.n = chunkSize / 2
		s.chunks = append(s.chunks, nil)
		copy(s.chunks[p.chunk+2:], s.chunks[p.chunk+1:])
		s.chunks[p.chunk+1] = half
		if p.index > c.n {
			p.index -= c.n
			c = half
		}
	}
	copy(c.entries[p.index+1:c.n+1], c.entries[p.index:c.n])
	c.entries[p.index] = e
	c.n++
}

// remove reports whether the entry was there.
func (s *sizeSet) remove(e entry) bool {
	p := s.lower(e)
	if !s.valid(p) || s.at(p) != e {
		return false
	}
	c := s.chunks[p.chunk]
	copy(c.entries[p.index:c.n-1], c.entries[p.index+1:c.n])
	c.n--
	if c.n == 0 {
		s.spare = append(s.spare, c)
		s.chunks = append(s.chunks[:p.chunk], s.chunks[p.chunk+1:]...)
	}
	return true
}

func (s *sizeSet) fresh() *chunk {
	if n := len(s.spare); n > 0 {
		c := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return c
	}
	return new(chunk)
}
