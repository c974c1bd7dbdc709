// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// List is a list, a tuple or a set. The same one may be in several places, also within itself.
type List struct{ Items []any }

// Dict is a dictionary without the keys that are no strings. It has the properties of List.
type Dict map[string]any

// Options bound what Read takes.
type Options struct {
	Size      int64 // bytes of the pickle, at most
	MaxMemory int64 // bytes that the values may take, as Read estimates them; 0: no limit
}

// ErrMemory reports a pickle whose values take more than Options.MaxMemory.
var ErrMemory = errors.New("the values of the pickle take too much memory")

// Costs of values, in bytes.
const (
	costSlot  = 16 // of an interface: on the stack, in the memo, in a list
	costValue = 32 // of a string's or a number's head, a list
	costDict  = 320
	costEntry = 48
)

// Read reads a pickle of protocol 2 to 5 that has only builtin types: nil for None, bool, int64,
// float64, string, []byte, *List and Dict. Classes, functions and anything that would run code are
// errors. So are numbers beyond 64 bits.
//
// Read does not recurse, and takes no more memory than Options allow, whatever the input is.
func Read(from io.Reader, o Options) (value any, err error) {
	r := &reader{in: bufio.NewReaderSize(from, 1<<16), left: o.Size, room: o.MaxMemory, bounded: o.MaxMemory > 0}
	for r.err == nil && !r.done {
		r.step(r.byte())
	}
	if r.err == nil && len(r.stack) != 1 {
		r.fail(fmt.Errorf("%d values at the end", len(r.stack)))
	}
	if r.err != nil {
		return nil, fmt.Errorf("pickle, at byte %d: %w", o.Size-r.left, r.err)
	}
	return r.stack[0], nil
}

// reader is the machine that a pickle is a program for. After an error, all that it reads is zero.
type reader struct {
	in      *bufio.Reader
	left    int64 // bytes of input
	room    int64 // bytes of values
	bounded bool
	stack   []any
	marks   []int // lengths of the stack
	memo    []any
	done    bool
	err     error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) pay(n int64) {
	if r.room -= n; r.bounded && r.room < 0 {
		r.fail(ErrMemory)
	}
}

func (r *reader) byte() byte { return r.bytes(1)[0] }

// scratch is what bytes returns after an error.
var scratch [8]byte

// bytes reads up to 8 bytes, which are valid until the next call.
func (r *reader) bytes(n int) []byte {
	if r.err != nil {
		return scratch[:n]
	}
	b, err := r.in.Peek(n)
	if err != nil || int64(n) > r.left {
		r.fail(io.ErrUnexpectedEOF)
		return scratch[:n]
	}
	_, _ = r.in.Discard(n)
	r.left -= int64(n)
	return b
}

// number reads an unsigned number of 1, 2, 4 or 8 bytes.
func (r *reader) number(bytes int) uint64 {
	var b [8]byte
	copy(b[:], r.bytes(bytes))
	return binary.LittleEndian.Uint64(b[:])
}

// text reads n bytes.
func (r *reader) text(n uint64) []byte {
	if r.err != nil || n > uint64(max(r.left, 0)) {
		r.fail(io.ErrUnexpectedEOF)
		return nil
	}
	if r.pay(int64(n) + costValue); r.err != nil {
		return nil
	}
	// A file may be shorter than Options.Size: allocate as the bytes arrive.
	const step = 1 << 20
	var b []byte
	for n > 0 && r.err == nil {
		part := int(min(n, step))
		b = append(b, make([]byte, part)...)
		if _, err := io.ReadFull(r.in, b[len(b)-part:]); err != nil {
			r.fail(io.ErrUnexpectedEOF)
		}
		n, r.left = n-uint64(part), r.left-int64(part)
	}
	return b
}

func (r *reader) push(v any) {
	r.pay(costSlot)
	if r.err == nil {
		r.stack = append(r.stack, v)
	}
}

func (r *reader) pushInt(n int64) {
	r.pay(costValue / 2)
	r.push(n)
}

// floor is the lowest place of the stack that an opcode may take from.
func (r *reader) floor() int {
	if len(r.marks) == 0 {
		return 0
	}
	return r.marks[len(r.marks)-1]
}

// pop takes the latest n values, valid until the next push.
func (r *reader) pop(n int) []any {
	if len(r.stack)-r.floor() < n {
		r.fail(errors.New("too few values"))
		return make([]any, n)
	}
	values := r.stack[len(r.stack)-n:]
	r.stack = r.stack[:len(r.stack)-n]
	return values
}

// popMark takes all values since the latest mark, valid until the next push.
func (r *reader) popMark() []any {
	if len(r.marks) == 0 {
		r.fail(errors.New("no mark"))
		return nil
	}
	values := r.pop(len(r.stack) - r.floor())
	r.marks = r.marks[:len(r.marks)-1]
	return values
}

func (r *reader) top() any {
	if len(r.stack) <= r.floor() {
		r.fail(errors.New("too few values"))
		return nil
	}
	return r.stack[len(r.stack)-1]
}

func (r *reader) step(op byte) {
	switch {
	case r.err != nil, r.simple(op), r.texts(op), r.containers(op), r.memoized(op):
	default:
		r.fail(fmt.Errorf("opcode %#02x is of a class or function, which are not read, or of no pickle", op))
	}
}

// simple executes opcodes of control and of values of a fixed size.
func (r *reader) simple(op byte) bool {
	switch op {
	case opProto:
		if v := r.byte(); r.err == nil && (v < 2 || v > 5) {
			r.fail(fmt.Errorf("protocol %d (2 to 5 are read)", v))
		}
	case opFrame:
		r.number(8)
	case opStop:
		r.done = true
	case opMark:
		r.pay(costSlot)
		r.marks = append(r.marks, len(r.stack))
	case opPop:
		if n := len(r.marks); n > 0 && len(r.stack) == r.floor() {
			r.marks = r.marks[:n-1]
		} else {
			r.pop(1)
		}
	case opPopMark:
		r.popMark()
	case opDup:
		r.push(r.top())
	case opNone:
		r.push(nil)
	case opNewTrue, opNewFalse:
		r.push(op == opNewTrue)
	case opBinInt:
		r.pushInt(int64(int32(r.number(4))))
	case opBinInt1:
		r.pushInt(int64(r.number(1)))
	case opBinInt2:
		r.pushInt(int64(r.number(2)))
	case opLong1:
		r.long(r.number(1))
	case opLong4:
		r.long(r.number(4))
	case opBinFloat:
		r.pay(costValue / 2)
		r.push(math.Float64frombits(binary.BigEndian.Uint64(r.bytes(8))))
	default:
		return false
	}
	return true
}

// long reads a number of n bytes, the last of which has the sign.
func (r *reader) long(n uint64) {
	if n > 8 {
		r.fail(fmt.Errorf("a number of %d bytes", n))
		return
	}
	var b [8]byte
	copy(b[:], r.bytes(int(n)))
	shift := 64 - 8*n
	v := int64(binary.LittleEndian.Uint64(b[:]) << shift)
	if n == 0 {
		v, shift = 0, 0
	}
	r.pushInt(v >> shift)
}

func (r *reader) texts(op byte) bool {
	var length int
	switch op {
	case opShortBinUnicode, opShortBinBytes, opShortBinString:
		length = 1
	case opBinUnicode, opBinBytes, opBinString:
		length = 4
	case opBinUnicode8, opBinBytes8, opByteArray8:
		length = 8
	default:
		return false
	}
	b := r.text(r.number(length))
	switch op {
	case opShortBinBytes, opBinBytes, opBinBytes8, opByteArray8:
		r.push(b)
	default: // strings of Python 2 as well
		r.push(string(b))
	}
	return true
}

func (r *reader) containers(op byte) bool {
	switch op {
	case opEmptyList, opEmptyTuple, opEmptySet:
		r.pushList(nil)
	case opList, opTuple, opFrozenSet:
		r.pushList(r.popMark())
	case opTuple1, opTuple2, opTuple3:
		r.pushList(r.pop(int(op-opTuple1) + 1))
	case opAppend:
		r.extend(r.pop(1))
	case opAppends, opAddItems:
		r.extend(r.popMark())
	case opEmptyDict:
		r.pushDict(nil)
	case opDict:
		r.pushDict(r.popMark())
	case opSetItem:
		r.set(r.pop(2))
	case opSetItems:
		r.set(r.popMark())
	default:
		return false
	}
	return true
}

func (r *reader) pushList(items []any) {
	r.pay(costValue + costSlot*int64(len(items)))
	if r.err == nil {
		r.push(&List{append([]any(nil), items...)})
	}
}

func (r *reader) extend(items []any) {
	l, is := r.top().(*List)
	if !is {
		r.fail(errors.New("items are added to what is no list"))
		return
	}
	r.pay(2 * costSlot * int64(len(items))) // a list grows in steps
	if r.err == nil {
		l.Items = append(l.Items, items...)
	}
}

func (r *reader) pushDict(items []any) {
	r.pay(costDict)
	d := Dict{}
	r.fill(d, items)
	r.push(d)
}

func (r *reader) set(items []any) {
	d, is := r.top().(Dict)
	if !is {
		r.fail(errors.New("a key is set in what is no dictionary"))
		return
	}
	r.fill(d, items)
}

func (r *reader) fill(d Dict, items []any) {
	if len(items)%2 != 0 {
		r.fail(errors.New("a key without a value"))
	}
	r.pay(costEntry * int64(len(items)/2))
	for i := 0; i+1 < len(items) && r.err == nil; i += 2 {
		if key, is := items[i].(string); is {
			d[key] = items[i+1]
		}
	}
}

func (r *reader) memoized(op byte) bool {
	switch op {
	case opBinGet:
		r.get(r.number(1))
	case opLongBinGet:
		r.get(r.number(4))
	case opBinPut:
		r.put(r.number(1))
	case opLongBinPut:
		r.put(r.number(4))
	case opMemoize:
		r.put(uint64(len(r.memo)))
	default:
		return false
	}
	return true
}

func (r *reader) get(n uint64) {
	if n >= uint64(len(r.memo)) {
		r.fail(fmt.Errorf("value %d was not memorized", n))
		return
	}
	r.push(r.memo[n])
}

// put gives the latest value a number. Python numbers values from 0 without gaps.
func (r *reader) put(n uint64) {
	v := r.top()
	switch {
	case r.err != nil:
	case n < uint64(len(r.memo)):
		r.memo[n] = v
	case n == uint64(len(r.memo)):
		r.pay(costSlot)
		r.memo = append(r.memo, v)
	default:
		r.fail(fmt.Errorf("value %d is memorized before value %d", n, len(r.memo)))
	}
}
