// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
)

// The profiler gives wrong lines for Python 3.10: it takes the index of a
// frame's instruction for an offset, and reads half of the line table. Here they are
// computed again.

// Layout of CPython 3.10 on 64-bit machines (code.h and bytesobject.h of
// Include/cpython).
const (
	codeArgCount     = 16
	codeKwOnlyCount  = 24
	codeFlags        = 36
	codeFirstLine    = 40
	codeLineTable    = 120
	codeHead         = 128 // bytes that hold the fields above
	bytesSize        = 16
	bytesData        = 32
	instructionBytes = 2
	maxLineTable     = 1 << 20
)

// maxLines310 bounds what is remembered for processes that are gone.
const maxLines310 = 1 << 16

// codePoint is an instruction of a function of a process.
type codePoint struct {
	pid  uint32
	code uint64 // address of the code object
	at   uint64 // checksum of the code object, index of the instruction << 32
}

// correctLines replaces the lines of s, whose frames were made from u.raw, if
// they are Python 3.10's. A line that cannot be read is 0.
func (u *Unwinder) correctLines(s *Stack) {
	var info support.PyProcInfo
	if !hasPython(s.Frames) || u.maps["py_procs"].Lookup(s.PID, &info) != nil || info.Version != python310 {
		return
	}
	var raw []libpf.EbpfFrame
	for rest := libpf.EbpfFrame(u.raw.FrameData); len(rest) > 0; rest = rest[rest.Length():] {
		raw = append(raw, rest[:rest.Length()])
	}
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.Function == "" {
			continue
		}
		f.Line = 0
		// The profiler makes one frame of each that the kernel sends.
		if len(raw) == len(s.Frames) && raw[i].Type().IsInterpType(libpf.Python) && len(raw[i]) == 3 {
			f.Line = u.line310(codePoint{s.PID, raw[i].Variable(0), raw[i].Variable(1)})
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

// line310 reads a line from the process, or remembers it when the process is
// gone.
func (u *Unwinder) line310(p codePoint) int {
	memory := u.memoryOf(p.pid)
	first, table, err := readCode310(memory, p.code, uint32(p.at))
	if err != nil {
		return u.lines310[p]
	}
	line := lineOf310(table, first, int32(p.at>>32))
	if u.lines310 == nil || len(u.lines310) >= maxLines310 {
		u.lines310 = map[codePoint]int{}
	}
	u.lines310[p] = line
	return line
}

// readCode310 reads first line and line table of a code object. checksum is
// what the kernel half computed of it, 0 if it could not.
func readCode310(m io.ReaderAt, code uint64, checksum uint32) (first int32, table []byte, err error) {
	var head [codeHead]byte
	if err := readAt(m, head[:], code); err != nil {
		return 0, nil, err
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(head[at:]) }
	sum := word(codeArgCount)<<25 + word(codeKwOnlyCount)<<18 + word(codeFlags)<<10 + word(codeFirstLine)
	if checksum != 0 && sum != checksum {
		return 0, nil, errors.New("another code object lies there now")
	}
	object := binary.LittleEndian.Uint64(head[codeLineTable:])
	var size [8]byte
	if err := readAt(m, size[:], object+bytesSize); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxLineTable {
		return 0, nil, fmt.Errorf("line table of %d bytes: too long", n)
	}
	table = make([]byte, n)
	return int32(word(codeFirstLine)), table, readAt(m, table, object+bytesData)
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
