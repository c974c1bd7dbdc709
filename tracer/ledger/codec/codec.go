// SPDX-License-Identifier: Apache-2.0

// Package codec writes and reads the fields of books in a capture: one function for both names each
// field once. What it reads is from a file that may be forged.
package codec

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"unsafe"
)

// Codec writes or reads one piece of data. Ids of stacks and texts stand in it by index.
type Codec struct {
	Stacks []uint64
	Texts  []string // untrusted
	Data   []byte   // of a writer
	Rest   []byte   // of a reader: what it has not read
	Bad    bool     // of a reader: the data ended too early or contradicts itself

	reading bool
	spend   func(steps int)
	stackOf map[uint64]uint64
	textOf  map[string]uint64
}

// NewWriter returns a codec that writes.
func NewWriter() *Codec {
	return &Codec{stackOf: map[uint64]uint64{}, textOf: map[string]uint64{}}
}

// NewReader returns a codec that reads data. It calls spend with 8 steps for each byte of memory
// that a list takes.
func NewReader(data []byte, stacks []uint64, texts []string, spend func(steps int)) *Codec {
	return &Codec{Rest: data, Stacks: stacks, Texts: texts, reading: true, spend: spend}
}

// Spend counts memory that a reader takes for n elements of so many bytes.
func (c *Codec) Spend(n, bytes int) {
	if c.reading {
		c.spend(stepsPerByte * n * bytes)
	}
}

// stepsPerByte bounds the memory of lists by ReadLimits.Steps.
const stepsPerByte = 8

// Reads reports whether it reads.
func (c *Codec) Reads() bool { return c.reading }

// Check makes the piece invalid if ok is false. A writer checks nothing.
func (c *Codec) Check(ok bool) { c.Bad = c.Bad || c.Reads() && !ok }

func (c *Codec) put(v uint64) { c.Data = binary.AppendUvarint(c.Data, v) }

func (c *Codec) get() uint64 {
	v, n := binary.Uvarint(c.Rest)
	if n <= 0 {
		c.Bad, c.Rest = true, nil
		return 0
	}
	c.Rest = c.Rest[n:]
	return v
}

// integer is any type of numbers.
type integer interface {
	~int | ~int8 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Num carries a number; those near 0 take one byte.
func Num[T integer](c *Codec, x *T) {
	if c.Reads() {
		v := c.get()
		*x = T(int64(v>>1) ^ -int64(v&1))
		return
	}
	v := int64(*x)
	c.put(uint64(v)<<1 ^ uint64(v>>63))
}

// Nums carries numbers.
func Nums[T integer](c *Codec, list ...*T) {
	for _, x := range list {
		Num(c, x)
	}
}

// Most carries a number that must not exceed a limit.
func Most[T integer](c *Codec, x *T, limit T) {
	Num(c, x)
	c.Check(*x >= 0 && *x <= limit)
}

// Amount carries a sum that is at most a limit. A larger one is absurd, and becomes the limit: what
// one process does must not spoil the rest.
func Amount(c *Codec, x *uint64, limit uint64) {
	if Num(c, x); c.Reads() {
		*x = min(*x, limit)
	}
}

// Flags carries up to 64 flags as one number.
func (c *Codec) Flags(list ...*bool) {
	var bits uint64
	for i, x := range list {
		if *x {
			bits |= 1 << i
		}
	}
	Num(c, &bits)
	for i, x := range list {
		*x = bits>>i&1 != 0
	}
}

// Float carries a number from 0 to math.MaxFloat32.
func (c *Codec) Float(x *float64) {
	bits := math.Float64bits(*x)
	if c.Reads() {
		if len(c.Rest) < 8 {
			c.Bad, c.Rest = true, nil
			return
		}
		bits, c.Rest = binary.LittleEndian.Uint64(c.Rest), c.Rest[8:]
		if *x = math.Float64frombits(bits); !(*x >= 0 && *x <= math.MaxFloat32) {
			c.Bad, *x = true, 0
		}
		return
	}
	c.Data = binary.LittleEndian.AppendUint64(c.Data, bits)
}

// Stack carries the id of a stack, whose frames a capture stores too.
func (c *Codec) Stack(x *uint64) {
	if c.Reads() {
		if i := c.get(); i < uint64(len(c.Stacks)) {
			*x = c.Stacks[i]
		} else {
			c.Bad = true
		}
		return
	}
	i, ok := c.stackOf[*x]
	if !ok {
		i = uint64(len(c.Stacks))
		c.stackOf[*x] = i
		c.Stacks = append(c.Stacks, *x)
	}
	c.put(i)
}

// Text carries a text.
func (c *Codec) Text(x *string) {
	if c.Reads() {
		if i := c.get(); i < uint64(len(c.Texts)) {
			*x = c.Texts[i]
		} else {
			c.Bad = true
		}
		return
	}
	i, ok := c.textOf[*x]
	if !ok {
		i = uint64(len(c.Texts))
		c.textOf[*x] = i
		c.Texts = append(c.Texts, *x)
	}
	c.put(i)
}

// TextList carries a list of at most limit texts.
func (c *Codec) TextList(list *[]string, limit int) {
	List(c, list, limit, func(x *string) { c.Text(x) })
}

// List carries a list of at most limit elements, each of which takes at least a byte; a writer
// leaves out further ones.
func List[T any](c *Codec, list *[]T, limit int, each func(*T)) {
	n := uint64(min(len(*list), limit))
	Num(c, &n)
	if !c.Reads() {
		for i := range n {
			each(&(*list)[i])
		}
		return
	}
	if n > uint64(limit) || n > uint64(len(c.Rest)) {
		c.Bad, n = true, 0
	}
	*list = nil
	for ; n > 0; n-- {
		var x T
		c.spend(stepsPerByte * int(unsafe.Sizeof(x))) // a byte of a file can take a hundred in memory
		if each(&x); c.Bad {                          // x may refer to anything
			return
		}
		*list = append(*list, x)
	}
}

// Map carries a map of at most limit elements, or nil as nil.
func Map[K cmp.Ordered, V any](c *Codec, m *map[K]V, limit int, each func(*K, *V)) {
	keys := slices.Sorted(maps.Keys(*m))
	if !c.Reads() {
		List(c, &keys, limit, func(k *K) {
			v := (*m)[*k]
			each(k, &v)
		})
		return
	}
	var k K
	var values []V
	List(c, &keys, limit, func(to *K) {
		var v V
		each(&k, &v)
		*to, values = k, append(values, v)
	})
	if len(keys) > 0 && *m == nil {
		*m = make(map[K]V, len(keys))
	}
	for i := range keys {
		(*m)[keys[i]] = values[i]
	}
}
