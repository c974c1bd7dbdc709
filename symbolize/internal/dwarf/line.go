// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"slices"
)

// row is the source line of the code that begins at address.
type row struct {
	address uint64
	file    uint32 // index in the unit's list of files
	line    uint32
}

// sequence is a contiguous range of code: rows[from:to], sorted by address.
type sequence struct {
	low, high uint64
	from, to  int
}

// lineFile is a file name and the index of its directory.
type lineFile struct {
	name value
	dir  uint64
}

// lineTable is the line table of one unit.
type lineTable struct {
	dirs      []value
	files     []lineFile
	rows      []row
	sequences []sequence // by address
	err       error      // why the table is incomplete
}

func (t *lineTable) size() int64 {
	return int64(cap(t.rows)+cap(t.dirs))*16 + int64(cap(t.files))*24 + int64(cap(t.sequences))*32
}

// find returns the file and line of pc.
func (t *lineTable) find(pc uint64) (file uint32, line int, ok bool) {
	i, _ := slices.BinarySearchFunc(t.sequences, pc, func(s sequence, pc uint64) int {
		if s.low <= pc {
			return -1
		}
		return 1
	})
	if i == 0 || pc >= t.sequences[i-1].high {
		return 0, 0, false
	}
	s := t.sequences[i-1]
	rows := t.rows[s.from:s.to]
	j, _ := slices.BinarySearchFunc(rows, pc, func(r row, pc uint64) int {
		if r.address <= pc {
			return -1 // of rows at one address, the last applies
		}
		return 1
	})
	if j == 0 {
		return 0, 0, false
	}
	return rows[j-1].file, int(rows[j-1].line), true
}

// endSequence turns the rows starting at from into a sequence that ends before high. It drops code
// that the linker discarded.
func (t *lineTable) endSequence(from int, high uint64, sorted bool) {
	rows := t.rows[from:]
	if !sorted {
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.address, b.address) })
	}
	if len(rows) == 0 || rows[0].address == 0 || rows[0].address >= high || high >= 1<<63 {
		t.rows = t.rows[:from]
		return
	}
	t.sequences = append(t.sequences, sequence{rows[0].address, high, from, len(t.rows)})
}
