// SPDX-License-Identifier: Apache-2.0

package export

import (
	"iter"
	"slices"
	"sort"
)

// class is what an extent is.
type class uint8

const (
	tensor class = iota // a block of PyTorch's allocator
	whole               // memory that one call took and one call frees
	mapped              // physical memory of the virtual memory API; what lies side by side may be one segment
	older               // memory before the attach that tensors were seen in, from the beginning of the trace on
	found               // likewise, where something else was before: from some moment on
)

// extent is a range of addresses of one process.
type extent struct {
	start, size uint64
	stack, time uint64
	context     uint64
	api         string
	id          uint32 // of a segment; of a tensor, that of the segment it begins in
	memory      uint32 // of class mapped: id of the physical memory
	device      int32  // of a tensor, that of its segment
	class       class
}

func (x *extent) end() uint64 { return x.start + x.size }

// guessed says whether only tensors tell of the memory, which is older than the attach.
func (x *extent) guessed() bool { return x.class == older || x.class == found }

// extents are sorted by address and never overlap. They lie in chunks, so that one more among a million
// moves a few KiB.
type extents struct {
	chunks [][]extent // none is empty
	n      int
}

const chunkExtents = 128

// seek returns the place of the first extent that ends above the address.
func (m *extents) seek(address uint64) (chunk, i int) {
	chunk = sort.Search(len(m.chunks), func(k int) bool {
		c := m.chunks[k]
		return c[len(c)-1].end() > address
	})
	if chunk < len(m.chunks) {
		c := m.chunks[chunk]
		i = sort.Search(len(c), func(k int) bool { return c[k].end() > address })
	}
	return chunk, i
}

// from visits the extents that end above the address. Until it is done, none may be added or removed.
func (m *extents) from(address uint64) iter.Seq[*extent] {
	return func(yield func(*extent) bool) {
		chunk, i := m.seek(address)
		for ; chunk < len(m.chunks); chunk, i = chunk+1, 0 {
			for ; i < len(m.chunks[chunk]); i++ {
				if !yield(&m.chunks[chunk][i]) {
					return
				}
			}
		}
	}
}

// at returns the extent that holds the address, nil if none does.
func (m *extents) at(address uint64) *extent {
	for x := range m.from(address) {
		if x.start <= address {
			return x
		}
		break
	}
	return nil
}

// before returns the end of the last extent that ends at or below the address, 0 without one.
func (m *extents) before(address uint64) uint64 {
	chunk, i := m.seek(address)
	switch {
	case i > 0:
		return m.chunks[chunk][i-1].end()
	case chunk > 0:
		c := m.chunks[chunk-1]
		return c[len(c)-1].end()
	}
	return 0
}

// insert adds an extent that overlaps none.
func (m *extents) insert(x extent) {
	m.n++
	chunk, i := m.seek(x.start)
	if chunk == len(m.chunks) {
		if chunk == 0 {
			m.chunks = append(m.chunks, nil)
		} else {
			chunk--
		}
		i = len(m.chunks[chunk])
	}
	c := slices.Insert(m.chunks[chunk], i, x)
	m.chunks[chunk] = c
	if len(c) > chunkExtents {
		half := len(c) / 2
		m.chunks[chunk] = c[:half:half]
		m.chunks = slices.Insert(m.chunks, chunk+1, slices.Clone(c[half:]))
	}
}

// cut removes and returns the extents that overlap [start, end).
func (m *extents) cut(start, end uint64) (list []extent) {
	chunk, i := m.seek(start)
	for chunk < len(m.chunks) {
		c := m.chunks[chunk]
		to := i
		for to < len(c) && c[to].start < end {
			to++
		}
		if to == i {
			break
		}
		list = append(list, c[i:to]...)
		if to-i == len(c) {
			m.chunks = slices.Delete(m.chunks, chunk, chunk+1)
			continue
		}
		last := to < len(c)
		m.chunks[chunk] = slices.Delete(c, i, to)
		if last {
			break
		}
		chunk, i = chunk+1, 0
	}
	m.n -= len(list)
	return list
}
