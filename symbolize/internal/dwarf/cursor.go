// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Section is the content of one DWARF section. The zero Section is empty.
type Section struct {
	R    io.ReaderAt
	Size int64 // bytes of R that belong to the section
}

var errShort = errors.New("section ends too early")

// maxString is the longest string read from a file, in bytes.
const maxString = 16 << 10

// String returns the zero-terminated string at off, truncated to 16 KiB.
func (s Section) String(off uint64) (string, error) {
	for n := int64(128); ; n *= 8 {
		if s.Size < 0 || off >= uint64(s.Size) {
			return "", errShort
		}
		buf := make([]byte, min(n, s.Size-int64(off), maxString))
		if got, err := s.R.ReadAt(buf, int64(off)); got < len(buf) {
			return "", fmt.Errorf("read string at %#x: %w", off, err)
		}
		if end := bytes.IndexByte(buf, 0); end >= 0 {
			return string(buf[:end]), nil
		}
		if len(buf) == maxString {
			return string(buf), nil // truncated
		}
		if int64(len(buf)) < n {
			return "", errShort
		}
	}
}

// unitWindow is a cursor's window for reading all entries of a unit, or its line table.
const unitWindow = 64 << 10

// cursor reads little-endian values from a section through a small window. After the first error,
// err is set and every value is 0.
type cursor struct {
	sec    Section
	window int // bytes per read
	buf    []byte
	base   int64 // offset of buf[0] in sec
	pos    int   // in buf
	err    error
}

func newCursor(sec Section, off uint64, window int) *cursor {
	c := &cursor{sec: sec, window: window}
	c.seek(off)
	return c
}

func (c *cursor) tell() uint64 { return uint64(c.base) + uint64(c.pos) }

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *cursor) seek(off uint64) {
	if off > uint64(max(c.sec.Size, 0)) {
		c.fail(errShort)
		return
	}
	if d := int64(off) - c.base; d >= 0 && d <= int64(len(c.buf)) {
		c.pos = int(d)
		return
	}
	c.base, c.pos, c.buf = int64(off), 0, c.buf[:0]
}

func (c *cursor) skip(n uint64) {
	if n > uint64(max(c.sec.Size, 0)) {
		c.fail(errShort)
		return
	}
	c.seek(c.tell() + n)
}

// take returns the next n bytes, or nil after an error. The slice is valid until the next call.
func (c *cursor) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if c.pos+n > len(c.buf) && !c.fill(n) {
		return nil
	}
	b := c.buf[c.pos : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) fill(n int) bool {
	off := c.base + int64(c.pos)
	left := c.sec.Size - off
	if int64(n) > left {
		c.err = errShort
		return false
	}
	size := int(min(int64(max(n, c.window)), left))
	if cap(c.buf) < size {
		c.buf = make([]byte, size)
	}
	c.buf, c.base, c.pos = c.buf[:size], off, 0
	if got, err := c.sec.R.ReadAt(c.buf, off); got < size {
		c.buf, c.err = c.buf[:0], fmt.Errorf("read at %#x: %w", off, err)
		return false
	}
	return true
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// fixed reads an unsigned value of size 1, 2, 3, 4 or 8 bytes.
func (c *cursor) fixed(size int) uint64 {
	var v uint64
	for i, b := range c.take(size) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

// offset reads a section offset: 8 bytes in 64-bit DWARF, otherwise 4.
func (c *cursor) offset(wide bool) uint64 {
	if wide {
		return c.u64()
	}
	return uint64(c.u32())
}

// length reads a unit's initial length and reports whether the unit is 64-bit DWARF.
func (c *cursor) length() (n uint64, wide bool) {
	if v := c.u32(); v != 0xffffffff {
		return uint64(v), false
	}
	return c.u64(), true
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := uint(0); shift < 70; shift += 7 {
		b := c.u8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	c.fail(errors.New("number of more than 64 bits"))
	return 0
}

func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); shift < 70; shift += 7 {
		b := c.u8()
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	c.fail(errors.New("number of more than 64 bits"))
	return 0
}

// skipString skips a zero-terminated string.
func (c *cursor) skipString() {
	for n := 0; n < maxString && c.err == nil; n++ {
		if c.u8() == 0 {
			return
		}
	}
	c.fail(errors.New("string too long"))
}
