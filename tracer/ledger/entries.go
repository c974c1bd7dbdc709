// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

const (
	chunkBits  = 13
	chunkLen   = 1 << chunkBits
	firstChunk = 8 // places at first: most processes have few allocations

	// Most steps that an entry is moved to its place by time. Events come nearly in order; beyond
	// this, the age of a site's oldest allocation may be wrong.
	maxSteps = 1024

	noSite = math.MaxUint32 // site of a free place
)

// entry is a live allocation or block, or a free place. Number 0 means none.
type entry struct {
	address, size, time uint64
	site                uint32
	prev, next          uint32 // in the list of the site, oldest first
	// Async: its pool; imported and aliased: references beyond the first; Tensor: its halvings.
	extra uint32
}

// entries stores entries in chunks, of which only the first grows. A pointer to an entry is valid
// until the next call of take.
type entries struct {
	chunks [][]entry
	used   uint32 // places ever handed out
	free   uint32 // list of free places through next
}

func (s *entries) at(n uint32) *entry { return &s.chunks[n>>chunkBits][n&(chunkLen-1)] }

func (s *entries) take(b entry) uint32 {
	n := s.free
	if n != 0 {
		s.free = s.at(n).next
	} else {
		s.used++
		n = s.used
		s.grow(n)
	}
	*s.at(n) = b
	return n
}

// grow makes room for a number.
func (s *entries) grow(n uint32) {
	switch chunk := int(n >> chunkBits); {
	case chunk > 0 && chunk >= len(s.chunks):
		s.chunks = append(s.chunks, make([]entry, chunkLen))
	case chunk == 0 && len(s.chunks) == 0:
		s.chunks = [][]entry{make([]entry, firstChunk)}
	case chunk == 0 && int(n) >= len(s.chunks[0]):
		s.chunks[0] = append(make([]entry, 0, 2*len(s.chunks[0])), s.chunks[0]...)[:2*len(s.chunks[0])]
	}
}

func (s *entries) release(n uint32) {
	*s.at(n) = entry{site: noSite, next: s.free}
	s.free = n
}

// leastEntries is the least number of places of which memory is given back when most are free.
const leastEntries = 1 << 16
