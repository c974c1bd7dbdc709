// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"slices"
)

// unit is the header of a compilation or partial unit, with the attributes of its first entry.
type unit struct {
	off, end uint64 // in .debug_info
	first    uint64 // offset of the first entry
	abbrevs  uint64 // offset in .debug_abbrev
	version  uint16
	wide     bool // 64-bit DWARF

	low                        uint64
	strBase, addrBase, rngBase uint64
	lineOff                    uint64
	hasLine                    bool
	compDir                    value
}

func (u *unit) offsetSize() int {
	if u.wide {
		return 8
	}
	return 4
}

// span is an address range of a unit or of an entry, as off says.
type span struct {
	low, high uint64
	off       uint64 // of the entry in .debug_info, or index of the unit
}

// compareSpans sorts by address, and wider spans first.
func compareSpans(a, b span) int {
	return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high), cmp.Compare(a.off, b.off))
}

// maxSpans bounds the address ranges of all units, and of the functions of one unit.
const maxSpans = 1 << 21

// maxOverlap is how many spans before the nearest one find checks; spans of one list rarely
// overlap.
const maxOverlap = 64

// find returns the last span, by start address, that contains pc.
func find(spans []span, pc uint64) (span, bool) {
	i, _ := slices.BinarySearchFunc(spans, pc, func(s span, pc uint64) int {
		if s.low <= pc {
			return -1
		}
		return 1
	})
	for n := 0; n < maxOverlap && i > 0; n++ {
		if i--; pc < spans[i].high {
			return spans[i], true
		}
	}
	return span{}, false
}
