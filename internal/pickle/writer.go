// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"strings"
)

const (
	writtenProtocol = 4
	// The viewer of PyTorch's snapshots appends a batch by one JavaScript call, with the arguments
	// on its stack.
	batchItems = 1000
)

// Writer writes values one after the other and keeps none. It uses protocol 4, and of it only the
// opcodes that the decoder of pytorch.org/memory_viz has. The same values give the same bytes.
type Writer struct {
	w       *bufio.Writer     // keeps errors until Close
	strings map[string]uint32 // memo numbers
	last    uint32            // numbers given so far
	scratch [9]byte
}

// NewWriter begins a pickle. Write one value, then call Close.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{w: bufio.NewWriterSize(to, 1<<16), strings: make(map[string]uint32)}
	w.op(opProto)
	w.op(writtenProtocol)
	return w
}

// Close ends the pickle. It returns the first error of any write, and does not close the
// destination.
func (w *Writer) Close() error {
	w.op(opStop)
	return w.w.Flush()
}

func (w *Writer) op(b byte) { _ = w.w.WriteByte(b) }

// memoize gives the latest value a number, for Ref.
func (w *Writer) memoize() uint32 {
	w.op(opMemoize)
	w.last++
	return w.last - 1
}

// Ref writes a value again, by its number from DictRef or ListRef.
func (w *Writer) Ref(n uint32) {
	if n <= math.MaxUint8 {
		w.op(opBinGet)
		w.op(byte(n))
		return
	}
	w.op(opLongBinGet)
	w.little(uint64(n), 4)
}

func (w *Writer) little(n uint64, bytes int) {
	binary.LittleEndian.PutUint64(w.scratch[:], n)
	_, _ = w.w.Write(w.scratch[:bytes])
}

// String writes a string, or refers to the same one that was written before. It leaves out invalid
// UTF-8.
func (w *Writer) String(s string) {
	if n, ok := w.strings[s]; ok {
		w.Ref(n)
		return
	}
	text := strings.ToValidUTF8(s, "")
	if len(text) <= math.MaxUint8 {
		w.op(opShortBinUnicode)
		w.op(byte(len(text)))
	} else {
		w.op(opBinUnicode)
		w.little(uint64(len(text)), 4)
	}
	_, _ = w.w.WriteString(text)
	w.strings[s] = w.memoize()
}

// Uint writes a number below 2^63; a larger one becomes negative.
func (w *Writer) Uint(n uint64) {
	switch {
	case n <= math.MaxUint8:
		w.op(opBinInt1)
		w.op(byte(n))
	case n <= math.MaxUint16:
		w.op(opBinInt2)
		w.little(n, 2)
	case n <= math.MaxInt32:
		w.op(opBinInt)
		w.little(n, 4)
	default:
		bytes := 1 // as many as it takes for the sign bit of the last to be 0
		for bytes < 8 && n>>(8*bytes-1) != 0 {
			bytes++
		}
		w.op(opLong1)
		w.op(byte(bytes))
		w.little(n, bytes)
	}
}

// Bool writes True or False.
func (w *Writer) Bool(b bool) {
	if b {
		w.op(opNewTrue)
	} else {
		w.op(opNewFalse)
	}
}

// Pair writes a tuple of two numbers.
func (w *Writer) Pair(a, b uint64) {
	w.Uint(a)
	w.Uint(b)
	w.op(opTuple2)
}

// Dict begins a dictionary. Keys and values follow in turn, at least one of each, then EndDict.
func (w *Writer) Dict() {
	w.op(opEmptyDict)
	w.op(opMark)
}

// DictRef is Dict, and returns a number with which Ref writes the dictionary again.
func (w *Writer) DictRef() uint32 {
	w.op(opEmptyDict)
	n := w.memoize()
	w.op(opMark)
	return n
}

// EndDict ends a dictionary.
func (w *Writer) EndDict() { w.op(opSetItems) }

// UintItem writes a key and its number.
func (w *Writer) UintItem(key string, n uint64) {
	w.String(key)
	w.Uint(n)
}

// StringItem writes a key and its string.
func (w *Writer) StringItem(key, s string) {
	w.String(key)
	w.String(s)
}

// ListWriter is a list under construction; each item follows a call of Item.
type ListWriter struct {
	w *Writer
	n int
}

// List begins a list.
func (w *Writer) List() ListWriter {
	w.op(opEmptyList)
	return ListWriter{w: w}
}

// ListRef is List, and returns a number with which Ref writes the list again.
func (w *Writer) ListRef() (ListWriter, uint32) {
	l := w.List()
	return l, w.memoize()
}

// Item announces the next item.
func (l *ListWriter) Item() {
	if l.n%batchItems == 0 {
		l.End()
		l.w.op(opMark)
	}
	l.n++
}

// End ends the list.
func (l *ListWriter) End() {
	if l.n > 0 {
		l.w.op(opAppends)
	}
}
