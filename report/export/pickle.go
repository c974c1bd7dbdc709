// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bufio"
	"encoding/binary"
	"math"
	"strings"
)

// Opcodes of Python's pickle, protocol 4, that this writer uses. The viewer's own decoder knows
// only a few.
const (
	opProto           = 0x80
	opStop            = '.'
	opMark            = '('
	opEmptyDict       = '}'
	opSetItems        = 'u'
	opEmptyList       = ']'
	opAppends         = 'e'
	opTuple2          = 0x86
	opTrue            = 0x88
	opFalse           = 0x89
	opInt1            = 'K' // a byte
	opInt2            = 'M' // two bytes
	opInt4            = 'J' // four bytes, signed
	opLong1           = 0x8a
	opShortBinUnicode = 0x8c
	opBinUnicode      = 'X'
	opMemoize         = 0x94
	opGet1            = 'h' // get from the memo, by a number of one byte
	opGet4            = 'j'

	pickleProtocol = 4
	// The viewer appends a batch by one JavaScript call, with the arguments on its stack.
	batchItems = 1000
)

// pickler writes values one after the other and keeps none. Errors stay in w until it is flushed.
type pickler struct {
	w       *bufio.Writer
	strings map[string]uint32 // memo numbers
	last    uint32            // numbers given so far
	scratch [9]byte
}

func newPickler(w *bufio.Writer) *pickler {
	p := &pickler{w: w, strings: make(map[string]uint32)}
	p.op(opProto)
	p.op(pickleProtocol)
	return p
}

func (p *pickler) op(b byte) { _ = p.w.WriteByte(b) }

// memoize gives the latest value a number, for get.
func (p *pickler) memoize() uint32 {
	p.op(opMemoize)
	p.last++
	return p.last - 1
}

func (p *pickler) get(n uint32) {
	if n <= math.MaxUint8 {
		p.op(opGet1)
		p.op(byte(n))
		return
	}
	p.op(opGet4)
	p.little(uint64(n), 4)
}

func (p *pickler) little(n uint64, bytes int) {
	binary.LittleEndian.PutUint64(p.scratch[:], n)
	_, _ = p.w.Write(p.scratch[:bytes])
}

// string writes a string, or refers to the same one that was written before.
func (p *pickler) string(s string) {
	if n, ok := p.strings[s]; ok {
		p.get(n)
		return
	}
	text := strings.ToValidUTF8(s, "")
	if len(text) <= math.MaxUint8 {
		p.op(opShortBinUnicode)
		p.op(byte(len(text)))
	} else {
		p.op(opBinUnicode)
		p.little(uint64(len(text)), 4)
	}
	_, _ = p.w.WriteString(text)
	p.strings[s] = p.memoize()
}

// uint writes a number below 2^63.
func (p *pickler) uint(n uint64) {
	switch {
	case n <= math.MaxUint8:
		p.op(opInt1)
		p.op(byte(n))
	case n <= math.MaxUint16:
		p.op(opInt2)
		p.little(n, 2)
	case n <= math.MaxInt32:
		p.op(opInt4)
		p.little(n, 4)
	default:
		bytes := 1 // as many as it takes for the sign bit of the last to be 0
		for n>>(8*bytes-1) != 0 {
			bytes++
		}
		p.op(opLong1)
		p.op(byte(bytes))
		p.little(n, bytes)
	}
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(opTrue)
	} else {
		p.op(opFalse)
	}
}

// dict begins a dictionary. Keys and values follow in turn, then endDict.
func (p *pickler) dict() {
	p.op(opEmptyDict)
	p.op(opMark)
}

func (p *pickler) endDict() { p.op(opSetItems) }

func (p *pickler) uintItem(key string, n uint64) {
	p.string(key)
	p.uint(n)
}

func (p *pickler) stringItem(key, s string) {
	p.string(key)
	p.string(s)
}

// list is a list under construction; each item follows a call of item.
type list struct {
	p *pickler
	n int
}

func (p *pickler) list() list {
	p.op(opEmptyList)
	return list{p: p}
}

func (l *list) item() {
	if l.n%batchItems == 0 {
		l.end()
		l.p.op(opMark)
	}
	l.n++
}

// end ends the batch and the list.
func (l *list) end() {
	if l.n > 0 {
		l.p.op(opAppends)
	}
}
