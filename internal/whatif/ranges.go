// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"slices"
)

// memory is what the driver gave: one allocation, or one mapping.
type memory struct {
	start, end uint64
	pool       uint32 // of the blocks in it
	owned      bool   // PyTorch's blocks lie in it
}

// ranges is the driver's memory, by address, without overlaps.
type ranges []memory

// maxRanges bounds it: PyTorch has thousands of segments.
const maxRanges = 1 << 18

// from returns the index of the first range that ends behind an address.
func (r ranges) from(address uint64) int {
	i, _ := slices.BinarySearchFunc(r, address, func(m memory, a uint64) int {
		if m.end <= a {
			return -1
		}
		return 1
	})
	return i
}

// add adds memory, in place of what lies there.
func (r *ranges) add(address, size uint64) {
	end := address + size
	if size == 0 || end < address || len(*r) >= maxRanges {
		return
	}
	r.remove(address, size)
	i, _ := slices.BinarySearchFunc(*r, address, func(m memory, a uint64) int { return cmp.Compare(m.start, a) })
	*r = slices.Insert(*r, i, memory{start: address, end: end})
}

// remove removes the ranges that have a byte of these, and returns those with blocks of PyTorch.
func (r *ranges) remove(address, size uint64) (owned []memory) {
	first := r.from(address)
	last := first
	for ; last < len(*r) && (*r)[last].start < address+size; last++ {
		if (*r)[last].owned {
			owned = append(owned, (*r)[last])
		}
	}
	*r = slices.Delete(*r, first, last)
	return owned
}

// own notes that a block of a pool lies in some memory.
func (r ranges) own(address, size uint64, pool uint32) {
	for i := r.from(address); i < len(r) && r[i].start < address+size; i++ {
		r[i].owned, r[i].pool = true, pool
	}
}

// pool returns the pool of the memory at an address, or 0.
func (r ranges) pool(address uint64) uint32 {
	if i := r.from(address); i < len(r) && r[i].start <= address && r[i].owned {
		return r[i].pool
	}
	return 0
}
