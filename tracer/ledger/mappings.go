// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
	"sort"
)

// mapping is the range of addresses [start, end) that leads to physical memory.
type mapping struct {
	start, end uint64
	memory     uint64 // its number; 0: a view, which is not booked
}

// mappings are those of a process by address. They never overlap, and lie in chunks so that
// a process with 100,000 of them moves 6 KiB for each change and not 2 MiB.
type mappings struct {
	chunks [][]mapping // none is empty
	n      int
}

const mappingChunk = 256

// span gives the range of size bytes from address, cut off at the end of all addresses.
func span(address, size uint64) (start, end uint64) {
	return address, address + min(size, math.MaxUint64-address)
}

// seek returns the place of the first mapping that ends above the address.
func (m *mappings) seek(address uint64) (chunk, i int) {
	chunk = sort.Search(len(m.chunks), func(k int) bool {
		c := m.chunks[k]
		return c[len(c)-1].end > address
	})
	if chunk < len(m.chunks) {
		c := m.chunks[chunk]
		i = sort.Search(len(c), func(k int) bool { return c[k].end > address })
	}
	return chunk, i
}

func (m *mappings) at(address uint64) (mapping, bool) {
	if chunk, i := m.seek(address); chunk < len(m.chunks) && m.chunks[chunk][i].start <= address {
		return m.chunks[chunk][i], true
	}
	return mapping{}, false
}

func (m *mappings) overlaps(start, end uint64) bool {
	chunk, i := m.seek(start)
	return chunk < len(m.chunks) && m.chunks[chunk][i].start < end
}

// insert adds a mapping that overlaps none.
func (m *mappings) insert(x mapping) {
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
	if len(c) > mappingChunk {
		half := len(c) / 2
		m.chunks[chunk] = c[:half:half]
		m.chunks = slices.Insert(m.chunks, chunk+1, slices.Clone(c[half:]))
	}
}

// cut removes and returns the mappings inside [start, end); with partly also those that reach out of it.
func (m *mappings) cut(start, end uint64, partly bool) (list []mapping) {
	chunk, i := m.seek(start)
	if !partly && chunk < len(m.chunks) && m.chunks[chunk][i].start < start {
		if i++; i == len(m.chunks[chunk]) {
			chunk, i = chunk+1, 0
		}
	}
	for chunk < len(m.chunks) {
		c := m.chunks[chunk]
		to := i
		for to < len(c) && c[to].start < end && (partly || c[to].end <= end) {
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
