// SPDX-License-Identifier: Apache-2.0

package holders

const (
	frInstr      = 56      // of a frame since 3.11: its instruction
	coLineTable  = 136     // of code since 3.11
	bytesData    = 32      // of a bytes object
	maxLineTable = 1 << 18 // bytes
	codeUnit     = 2       // bytes of an instruction without an argument
)

// lineNow returns the line that a frame executes, or 0 if it is unknown: before 3.11, and where the
// instruction is not in the frame's code.
func (py *python) lineNow(f, code uint64, first uint32) int {
	t := py.typeOf(code)
	if py.l.frameObjects() || t == nil || t.item != codeUnit {
		return 0
	}
	begin, units := code+t.basic, py.U64(code+obSize) // instructions are the last field of code
	at := py.U64(f + frInstr)
	if at < begin || (at-begin)/codeUnit >= units || (at-begin)%codeUnit != 0 {
		return 0
	}
	table := py.U64(code + coLineTable)
	n := py.U64(table + obSize)
	if b := py.typeOf(table); b == nil || b.flags&flagBytes == 0 || n > maxLineTable {
		return 0
	}
	text := make([]byte, n)
	if !py.Read(text, table+bytesData) {
		return 0
	}
	return lineOf(text, int64(first), (at-begin)/codeUnit)
}

// lineOf returns the line of an instruction, counted in units, as the table of locations of CPython
// 3.11 and later says; 0 if it says none.
func lineOf(table []byte, line int64, unit uint64) int {
	const noColumns, long, none = 13, 14, 15
	for end := uint64(0); len(table) > 0; {
		head := table[0]
		if head&0x80 == 0 { // not the begin of an entry
			return 0
		}
		table = table[1:]
		kind, delta, skip := head>>3&15, int64(0), 0
		switch {
		case kind < 10:
			skip = 1
		case kind < noColumns:
			delta, skip = int64(kind-10), 2
		case kind != none:
			delta, table = signed(table)
		}
		if kind == long {
			for range 3 { // the last line, and both columns
				_, table = varint(table)
			}
		}
		if skip > len(table) {
			return 0
		}
		table = table[skip:]
		line += delta
		end += uint64(head&7) + 1
		if unit < end {
			if kind == none || line <= 0 || line > 1<<30 {
				return 0
			}
			return int(line)
		}
	}
	return 0
}

// varint reads a number in pieces of 6 bits, the lowest first. More than 30 bits make it wrong, and
// nothing worse.
func varint(table []byte) (n uint64, rest []byte) {
	for i, b := range table {
		if b&0x80 != 0 { // the next entry
			return n, table[i:]
		}
		if i < 5 {
			n |= uint64(b&0x3f) << (6 * i)
		}
		if b&0x40 == 0 {
			return n, table[i+1:]
		}
	}
	return n, nil
}

// signed reads a number whose lowest bit is its sign.
func signed(table []byte) (int64, []byte) {
	n, rest := varint(table)
	if n&1 == 1 {
		return -int64(n >> 1), rest
	}
	return int64(n >> 1), rest
}
