// SPDX-License-Identifier: Apache-2.0

package allocator

import "encoding/binary"

const (
	setSize   = 48 // of a std::set, whose header begins 8 bytes in
	nodeSize  = 40 // of its nodes, with the value
	tableSize = 32 // of a ska::flat_hash_map
	maxSlots  = 1 << 22
)

// isSet reports whether the header of a std::set, its _Rb_tree_node_base, is at h[o:], which was read
// from at+o. The root's parent is the header; an empty set leads to itself.
func (r *reader) isSet(h []byte, at uint64, o int) bool {
	if o+nodeSize > len(h) || binary.LittleEndian.Uint32(h[o:]) != 0 { // the header is red
		return false
	}
	root, left, right, n := word(h, o+8), word(h, o+16), word(h, o+24), word(h, o+32)
	self := at + uint64(o)
	if n == 0 {
		return root == 0 && left == self && right == self
	}
	return n <= maxBlocks && r.pointer(root) && r.pointer(left) && r.pointer(right) && word(r.get(root, nodeSize), 8) == self
}

// set returns the values of the set at h[o:], and whether there are as many as its count says. It
// reads one level of the tree at a time, and ends where a cycle gives more.
func (r *reader) set(h []byte, o int) (values []uint64, ok bool) {
	n := word(h, o+32)
	if n == 0 {
		return nil, true
	}
	if n > maxBlocks {
		return nil, false
	}
	for level := []uint64{word(h, o+8)}; len(level) > 0 && uint64(len(values)+len(level)) <= n && !r.over; {
		b := r.each(nodeSize, level)
		level = nil
		for ; len(b) >= nodeSize; b = b[nodeSize:] {
			values = append(values, word(b, 32))
			for _, child := range []uint64{word(b, 16), word(b, 24)} {
				if child != 0 {
					level = append(level, child)
				}
			}
		}
	}
	return values, uint64(len(values)) == n
}

// table returns the entries of the ska::flat_hash_map at h[o:] with entries of a size. It proves
// itself by its count; a torn one misses few.
func (r *reader) table(h []byte, o, entry int) (entries [][]byte, ok bool) {
	if o+tableSize > len(h) {
		return nil, false
	}
	at, mask, lookups, count := word(h, o), word(h, o+8), int(int8(h[o+17])), word(h, o+24)
	if !r.pointer(at) || mask >= maxSlots || mask&(mask+1) != 0 || lookups < 1 || lookups > 64 || count > mask+1 {
		return nil, false
	}
	b := r.get(at, (int(mask)+lookups)*entry)
	for ; len(b) >= entry; b = b[entry:] {
		if int8(b[0]) >= 0 { // the distance from its slot; -1: empty
			entries = append(entries, b[:entry])
		}
	}
	return entries, uint64(len(entries)) == count
}
