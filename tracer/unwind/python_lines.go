// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
)

// The profiler gives wrong lines from Python 3.10 on. In 3.10 it takes the index of a frame's instruction for an
// offset, and reads half of the line table; later it takes the line before code of no line for -1, so that what follows
// in the function (all of it, in closures) is too low. Here they are computed again.

// codeLayout says where a code object has its fields, on 64-bit machines (Include/cpython/code.h).
type codeLayout struct{ argCount, kwOnlyCount, flags, firstLine, lineTable uint64 }

var (
	layout310 = codeLayout{argCount: 16, kwOnlyCount: 24, flags: 36, firstLine: 40, lineTable: 120}
	layout311 = codeLayout{argCount: 56, kwOnlyCount: 64, flags: 48, firstLine: 72, lineTable: 136}
	layout312 = codeLayout{argCount: 52, kwOnlyCount: 60, flags: 48, firstLine: 68, lineTable: 136}
)

// layoutOf gives the layout of a process's code objects; false where the profiler's lines stay: they are right before 3.10, and
// objects of another layout, as of builds without a GIL, are not known here.
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
	codeHead         = 144 // bytes that hold the fields above
	bytesSize        = 16
	bytesData        = 32
	instructionBytes = 2
	maxLineTable     = 1 << 20
)

// maxTables bounds the bytes of line tables that are remembered.
const maxTables = 16 << 20

// codeKey names a code object of a process.
type codeKey struct {
	pid     uint32
	sum     uint32 // its checksum, by the kernel half
	address uint64
}

// codeLines is what its lines follow from.
type codeLines struct {
	first int32
	at    uint64 // address of the table's object
	table []byte
	read  time.Time // or found to be as before
}

// trusted is how long a code object is not looked at again.
const trusted = time.Second

// correctLines replaces the lines of s, whose frames were made from u.raw, if
// they are of Python 3.10 or later. A line that cannot be read is 0.
func (u *Unwinder) correctLines(s *Stack) {
	at, _ := u.layouts.layoutOf(s.PID)
	if !hasPython(s.Frames) || at == nil || at.python == nil {
		return
	}
	info := *(*support.PyProcInfo)(unsafe.Pointer(unsafe.SliceData(at.python)))
	layout, wrong := layoutOf(&info)
	if !wrong {
		return
	}
	lineOf := lineOf311
	if info.Version == python310 {
		lineOf = lineOf310
	}
	raw := u.rawFrames()
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.Function == "" {
			continue
		}
		f.Line = 0
		// The profiler makes one frame of each that the kernel sends.
		if len(raw) == len(s.Frames) && raw[i].Type().IsInterpType(libpf.Python) && len(raw[i]) == 3 {
			at := raw[i].Variable(1) // checksum of the code object, index of the instruction << 32
			if c := u.linesOf(codeKey{s.PID, uint32(at), raw[i].Variable(0)}, &layout); c != nil {
				f.Line = lineOf(c.table, c.first, int32(at>>32))
			}
		}
	}
}

func hasPython(frames []Frame) bool {
	for _, f := range frames {
		if f.Function != "" {
			return true
		}
	}
	return false
}

// linesOf reads a code object from the process, or remembers it when it is gone; nil if it was never read.
func (u *Unwinder) linesOf(key codeKey, layout *codeLayout) *codeLines {
	known := u.lines[key]
	if known != nil && time.Since(known.read) < trusted {
		return known
	}
	read, err := readCode(u.memoryOf(key.pid), key, layout, known)
	if err != nil {
		return known
	}
	if read.read = time.Now(); read == known {
		return known
	}
	if u.linesSize += len(read.table) + 128; u.lines == nil || u.linesSize > maxTables {
		u.lines, u.linesSize = map[codeKey]*codeLines{}, len(read.table)+128
	}
	u.lines[key] = read
	return read
}

// readCode reads first line and line table of a code object; it returns known if that is still right. A checksum
// of 0 says that the kernel half could not compute one.
func readCode(m io.ReaderAt, key codeKey, layout *codeLayout, known *codeLines) (*codeLines, error) {
	var head [codeHead]byte
	if err := readAt(m, head[:layout.lineTable+8], key.address); err != nil {
		return nil, err
	}
	word := func(at uint64) uint32 { return binary.LittleEndian.Uint32(head[at:]) }
	sum := word(layout.argCount)<<25 + word(layout.kwOnlyCount)<<18 + word(layout.flags)<<10 + word(layout.firstLine)
	if key.sum != 0 && sum != key.sum {
		return nil, errors.New("another code object lies there now")
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

// lineOf310 finds the line of an instruction in a table of PEP 626 as Python
// 3.10 writes it: pairs of (unsigned) bytes of code and the (signed) difference
// of their line to the line before, -128 for code of no line. 0: no line.
func lineOf310(table []byte, first, instruction int32) int {
	if instruction < 0 { // not begun yet
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

// The kinds of entries in a line table of Python 3.11 and later (Objects/locations.md of CPython): the first byte of an entry is 128 +
// kind << 3 + instructions - 1. Kinds below oneLine have no difference of lines, a byte of columns, and these have two.
const (
	oneLine   = 10 // and 11, 12: 0, 1 or 2 lines further
	noColumns = 13
	longEntry = 14
	noLine    = 15
)

// lineOf311 finds the line of an instruction (a unit of two bytes, caches too) in a table of Python 3.11 or later. Code of
// no line leaves the line from which the next entry counts as it was. 0: no line.
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

// varint takes a number of six bits a byte, lowest first, and returns what is behind it. What is too long is cut off.
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

func readAt(m io.ReaderAt, b []byte, address uint64) error {
	_, err := m.ReadAt(b, int64(address))
	return err
}

// readMemory fills b from the memory of a process.
func readMemory(pid uint32, address uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}, 0)
	if err == nil && n != len(b) {
		err = unix.EFAULT
	}
	if err != nil {
		return fmt.Errorf("read %d bytes of process %d at %#x: %w", len(b), pid, address, err)
	}
	return nil
}
