// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"go.opentelemetry.io/ebpf-profiler/support"
)

// The profiler computes wrong lines from Python 3.10 on, so this file computes them again. In 3.10
// the profiler takes the index of a frame's instruction for an offset, and reads half of the line
// table. In later versions it counts code without a line as line -1, so that all later lines of the
// function are too low; in closures, all lines.

// codeLayout has the offsets of a code object's fields on 64-bit machines (Include/cpython/code.h).
type codeLayout struct{ argCount, kwOnlyCount, flags, firstLine, lineTable uint64 }

var (
	layout310 = codeLayout{argCount: 16, kwOnlyCount: 24, flags: 36, firstLine: 40, lineTable: 120}
	layout311 = codeLayout{argCount: 56, kwOnlyCount: 64, flags: 48, firstLine: 72, lineTable: 136}
	layout312 = codeLayout{argCount: 52, kwOnlyCount: 60, flags: 48, firstLine: 68, lineTable: 136}
)

// layoutOf returns the layout of a process's code objects. It returns false if the profiler's lines
// stay: they are right before 3.10, and code objects of other builds, such as free-threaded ones,
// are unknown.
func layoutOf(info *support.PyProcInfo) (codeLayout, bool) {
	switch {
	case info.Version < python310:
		return codeLayout{}, false
	case info.Version == python310:
		return layout310, true
	case info.Version == python311:
		return layout311, uint64(info.PyCodeObject_co_firstlineno) == layout311.firstLine
	}
	return layout312, uint64(info.PyCodeObject_co_firstlineno) == layout312.firstLine
}

const (
	codeHead         = 144 // bytes of a code object that contain the fields above
	bytesSize        = 16
	bytesData        = 32
	instructionBytes = 2
	maxLineTable     = 1 << 20
)

// maxTables limits the bytes of cached line tables.
const maxTables = 16 << 20

// codeKey identifies a code object of a process.
type codeKey struct {
	pid     uint32
	sum     uint32 // its checksum, computed by the unwinder's Python program
	address uint64
}

// codeLines has the first line and the line table of a code object.
type codeLines struct {
	first int32
	at    uint64 // address of the table's bytes object
	table []byte
	read  time.Time // of the last read
}

// trusted is how long a cached code object is used without reading it again.
const trusted = time.Second

// lineCache holds the line tables of code objects that Decode has read.
type lineCache struct {
	tables cache[codeKey, *codeLines]
	size   int // bytes of the younger tables
}

// of reads a code object from the memory of its process. It returns the cached one if the read
// fails; nil if there is none.
func (l *lineCache) of(from *memories, key codeKey, layout *codeLayout) *codeLines {
	known, _ := l.tables.get(key)
	if known != nil && time.Since(known.read) < trusted {
		return known
	}
	read, err := readCode(from.of(key.pid), key, layout, known)
	if err != nil {
		return known
	}
	if read.read = time.Now(); read == known {
		return known
	}
	if l.size += len(read.table) + 128; l.size > maxTables/2 {
		l.tables.turn()
		l.size = len(read.table) + 128
	}
	l.tables.put(key, read)
	return read
}

// age drops the tables that were not used for long.
func (l *lineCache) age(now time.Time) {
	if l.tables.age(now) {
		l.size = 0
	}
}

// readCode reads first line and line table of a code object. It returns known if that is still
// valid. A checksum of 0 means that the kernel half could not compute it.
func readCode(m io.ReaderAt, key codeKey, layout *codeLayout, known *codeLines) (*codeLines, error) {
	var head [codeHead]byte
	if err := readAt(m, head[:layout.lineTable+8], key.address); err != nil {
		return nil, err
	}
	word := func(at uint64) uint32 { return binary.LittleEndian.Uint32(head[at:]) }
	sum := word(layout.argCount)<<25 + word(layout.kwOnlyCount)<<18 + word(layout.flags)<<10 + word(layout.firstLine)
	if key.sum != 0 && sum != key.sum {
		return nil, errors.New("the address has another code object now")
	}
	c := &codeLines{first: int32(word(layout.firstLine)), at: binary.LittleEndian.Uint64(head[layout.lineTable:])}
	if known != nil && known.first == c.first && known.at == c.at {
		return known, nil
	}
	var size [8]byte
	if err := readAt(m, size[:], c.at+bytesSize); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxLineTable {
		return nil, fmt.Errorf("line table of %d bytes: too long", n)
	}
	c.table = make([]byte, n)
	return c, readAt(m, c.table, c.at+bytesData)
}

// lineOf310 returns the line of an instruction from a table of PEP 626, as in Python 3.10: pairs of
// a number of code bytes (unsigned) and the difference to the previous line (signed); -128 marks
// code without a line. It returns 0 for no line.
func lineOf310(table []byte, first, instruction int32) int {
	if instruction < 0 { // the function has not started yet
		return int(max(0, first))
	}
	at := int64(instruction) * instructionBytes
	line, end := int64(first), int64(0)
	for ; len(table) >= 2; table = table[2:] {
		delta := int8(table[1])
		if delta != -128 {
			line += int64(delta)
		}
		end += int64(table[0])
		if at < end {
			if delta == -128 || line < 0 || line > 1<<31-1 {
				return 0
			}
			return int(line)
		}
	}
	return 0
}

// Kinds of entries in a line table of Python 3.11 and later (CPython's Objects/locations.md). The
// first byte of an entry is 128 + kind<<3 + instructions - 1. Kinds below oneLine do not change the
// line and have one byte of columns; kinds from oneLine to noColumns - 1 have two.
const (
	oneLine   = 10 // 10, 11 and 12 advance by 0, 1 and 2 lines
	noColumns = 13
	longEntry = 14
	noLine    = 15
)

// lineOf311 returns the line of an instruction from a table of Python 3.11 or later. An
// instruction, or a cache entry, is a unit of two bytes. Code without a line does not change the
// line from which the next entry counts. It returns 0 for no line.
func lineOf311(table []byte, first, instruction int32) int {
	line, end := int64(first), int64(0)
	for len(table) > 0 {
		head := table[0]
		if head&0x80 == 0 {
			return 0
		}
		kind := head >> 3 & 15
		end += int64(head&7) + 1
		table = table[1:]
		switch {
		case kind < oneLine:
			table = table[min(1, len(table)):]
		case kind < noColumns:
			line += int64(kind - oneLine)
			table = table[min(2, len(table)):]
		case kind != noLine:
			var delta uint32
			delta, table = varint(table)
			if difference := int64(delta >> 1); delta&1 != 0 {
				line -= difference
			} else {
				line += difference
			}
			for range 3 * int(kind-noColumns) {
				_, table = varint(table)
			}
		}
		if int64(max(0, instruction)) < end {
			if kind == noLine || line < 0 || line > 1<<31-1 {
				return 0
			}
			return int(line)
		}
	}
	return 0
}

// varint decodes a number of six bits per byte, lowest first, and returns the remaining bytes. It
// ignores bits beyond 32.
func varint(b []byte) (n uint32, rest []byte) {
	for i, x := range b {
		if i < 6 {
			n |= uint32(x&0x3f) << (6 * i)
		}
		if x&0x40 == 0 {
			return n, b[i+1:]
		}
	}
	return n, nil
}

// readAt reads len(b) bytes of m at an address.
func readAt(m io.ReaderAt, b []byte, address uint64) error {
	_, err := m.ReadAt(b, int64(address))
	return err
}
