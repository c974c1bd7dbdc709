// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"slices"
)

const (
	setSize   = 48 // of a std::set, whose header begins 8 bytes in
	nodeSize  = 40 // of its nodes, with the value
	tableSize = 32 // of a ska::flat_hash_map
	maxSlots  = 1 << 22
)

// isSet reports whether the header of a std::set, its _Rb_tree_node_base, is at h[o:], which was
// read from at+o. The root's parent is the header; an empty set leads to itself.
func (r *reader) isSet(h []byte, at uint64, o int) bool {
	return r.likeSet(h, at, o) && (word(h, o+32) == 0 || word(r.get(word(h, o+8), nodeSize), 8) == at+uint64(o))
}

// likeSet is isSet without a look at the root.
func (r *reader) likeSet(h []byte, at uint64, o int) bool {
	if o+nodeSize > len(h) || binary.LittleEndian.Uint32(h[o:]) != 0 { // the header is red
		return false
	}
	root, left, right, n := word(h, o+8), word(h, o+16), word(h, o+24), word(h, o+32)
	self := at + uint64(o)
	if n == 0 {
		return root == 0 && left == self && right == self
	}
	return n <= maxBlocks && r.pointer(root) && r.pointer(left) && r.pointer(right)
}

// set shows the values of the set at h[o:] to see, and reports whether there are as many as its
// count says. It reads one level of the tree at a time, and ends where a cycle gives more.
func (r *reader) set(h []byte, o int, see func(value uint64)) (ok bool) {
	n := word(h, o+32)
	if n == 0 {
		return true
	}
	if n > maxBlocks {
		return false
	}
	seen := uint64(0)
	var below []uint64
	for level := []uint64{word(h, o+8)}; len(level) > 0 && seen+uint64(len(level)) <= n && !r.over; level, below = below, level[:0] {
		slices.Sort(level)
		r.each(nodeSize, level, func(_ int, b []byte) {
			see(word(b, 32))
			for _, child := range [2]uint64{word(b, 16), word(b, 24)} {
				if child != 0 {
					below = append(below, child)
				}
			}
		})
		seen += uint64(len(level))
	}
	return seen == n
}

// hashTable is the head of a ska::flat_hash_map.
type hashTable struct {
	at    uint64 // its entries
	slots int    // that an entry can be in
	count uint64 // of its entries
}

// tableAt returns the head of the table at h[o:], and whether it can be one.
func (r *reader) tableAt(h []byte, o int) (t hashTable, ok bool) {
	if o < 0 || o+tableSize > len(h) {
		return t, false
	}
	at, mask, lookups, count := word(h, o), word(h, o+8), int(int8(h[o+17])), word(h, o+24)
	if !r.pointer(at) || mask >= maxSlots || mask&(mask+1) != 0 || lookups < 1 || lookups > 64 || count > mask+1 {
		return t, false
	}
	return hashTable{at, int(mask) + lookups, count}, true
}

// entries shows the entries of a table to see, each of size bytes; see may not read. It reports
// whether there are as many as the table's count says; a torn one misses few.
func (r *reader) entries(t hashTable, size int, see func(entry []byte)) (ok bool) {
	if t.slots == 0 {
		return false
	}
	seen := uint64(0)
	for at, left := t.at, t.slots; left > 0 && !r.over; {
		n := min(left, (pieceSize/size)&^7)
		for b := r.get(at, n*size); len(b) >= size; b = b[size:] {
			if int8(b[0]) >= 0 { // the distance from its slot; -1: empty
				see(b[:size])
				seen++
			}
		}
		at, left = at+uint64(n*size), left-n
	}
	return seen == t.count && !r.over
}

// table shows the entries of the table at h[o:], as entries does.
func (r *reader) table(h []byte, o, size int, see func(entry []byte)) (ok bool) {
	t, ok := r.tableAt(h, o)
	return ok && r.entries(t, size, see)
}
