// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"slices"
)

// memory is what the driver gave: one allocation, or one mapping.
type memory struct {
	start, end uint64
	owner      *recorded // the allocator whose blocks lie in it; nil: none's
	pool       uint32    // of the blocks
}

// ranges is the driver's memory, by address, without overlaps.
type ranges []memory

// maxOwned bounds the ranges of one block: 80 GiB in mappings of 20 MiB.
const maxOwned = 1 << 12

// maxRanges bounds it: PyTorch has thousands of segments.
const maxRanges = 1 << 16

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
		if (*r)[last].owner != nil {
			owned = append(owned, (*r)[last])
		}
	}
	*r = slices.Delete(*r, first, last)
	return owned
}

// own notes that a block of an allocator's pool lies in some memory.
func (r ranges) own(t *recorded, address, size uint64, pool uint32) {
	first := r.from(address)
	for i := first; i < min(len(r), first+maxOwned) && r[i].start < address+size; i++ {
		r[i].owner, r[i].pool = t, pool
	}
}

// pool returns the pool of an allocator's memory at an address, or 0.
func (r ranges) pool(t *recorded, address uint64) uint32 {
	if i := r.from(address); i < len(r) && r[i].start <= address && r[i].owner == t {
		return r[i].pool
	}
	return 0
}
