// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"unsafe"
)

// carrier writes or reads the fields of a Carried: one function for both names each field once. What
// it reads is from a file that may be forged.
type carrier struct {
	to      *Carried // of a writer
	stackOf map[uint64]uint64
	textOf  map[string]uint64

	l    *Ledger
	from *Carried // of a reader
	rest []byte   // of from.Data
	bad  bool     // it ended too early or contradicts itself

	renumber *opener // of a writer
}

// stepsPerByte bounds the memory of lists by ReadLimits.Steps.
const stepsPerByte = 8

func (c *carrier) reads() bool { return c.from != nil }

// check makes the piece invalid if ok is false. A writer checks nothing.
func (c *carrier) check(ok bool) { c.bad = c.bad || c.reads() && !ok }

func (c *carrier) put(v uint64) { c.to.Data = binary.AppendUvarint(c.to.Data, v) }

func (c *carrier) get() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.bad, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

type integer interface {
	~int | ~int8 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// num carries a number; those near 0 take one byte.
func num[T integer](c *carrier, x *T) {
	if c.reads() {
		v := c.get()
		*x = T(int64(v>>1) ^ -int64(v&1))
		return
	}
	v := int64(*x)
	c.put(uint64(v)<<1 ^ uint64(v>>63))
}

func nums[T integer](c *carrier, list ...*T) {
	for _, x := range list {
		num(c, x)
	}
}

// most carries a number that must not exceed a limit.
func most[T integer](c *carrier, x *T, limit T) {
	num(c, x)
	c.check(*x >= 0 && *x <= limit)
}

// amount carries a sum that is at most a limit. A larger one is absurd, and becomes the limit: what
// one process does must not spoil the rest.
func amount(c *carrier, x *uint64, limit uint64) {
	if num(c, x); c.reads() {
		*x = min(*x, limit)
	}
}

func (c *carrier) flags(list ...*bool) {
	var bits uint64
	for i, x := range list {
		if *x {
			bits |= 1 << i
		}
	}
	num(c, &bits)
	for i, x := range list {
		*x = bits>>i&1 != 0
	}
}

func (c *carrier) float(x *float64) {
	bits := math.Float64bits(*x)
	if c.reads() {
		if len(c.rest) < 8 {
			c.bad, c.rest = true, nil
			return
		}
		bits, c.rest = binary.LittleEndian.Uint64(c.rest), c.rest[8:]
		if *x = math.Float64frombits(bits); !(*x >= 0 && *x <= math.MaxFloat32) {
			c.bad, *x = true, 0
		}
		return
	}
	c.to.Data = binary.LittleEndian.AppendUint64(c.to.Data, bits)
}

// stack carries the id of a stack, whose frames a capture stores too.
func (c *carrier) stack(x *uint64) {
	if c.reads() {
		if i := c.get(); i < uint64(len(c.from.Stacks)) {
			*x = c.from.Stacks[i]
		} else {
			c.bad = true
		}
		return
	}
	i, ok := c.stackOf[*x]
	if !ok {
		i = uint64(len(c.to.Stacks))
		c.stackOf[*x] = i
		c.to.Stacks = append(c.to.Stacks, *x)
	}
	c.put(i)
}

func (c *carrier) text(x *string) {
	if c.reads() {
		if i := c.get(); i < uint64(len(c.from.Texts)) {
			*x = c.from.Texts[i]
		} else {
			c.bad = true
		}
		return
	}
	i, ok := c.textOf[*x]
	if !ok {
		i = uint64(len(c.to.Texts))
		c.textOf[*x] = i
		c.to.Texts = append(c.to.Texts, *x)
	}
	c.put(i)
}

func (c *carrier) texts(list *[]string, limit int) {
	carryList(c, list, limit, func(x *string) { c.text(x) })
}

// carryList carries a list of at most limit elements, each of which takes at least a byte; a writer
// leaves out further ones.
func carryList[T any](c *carrier, list *[]T, limit int, each func(*T)) {
	n := uint64(min(len(*list), limit))
	num(c, &n)
	if !c.reads() {
		for i := range n {
			each(&(*list)[i])
		}
		return
	}
	if n > uint64(limit) || n > uint64(len(c.rest)) {
		c.bad, n = true, 0
	}
	*list = nil
	for ; n > 0; n-- {
		var x T
		c.l.spend(stepsPerByte * int(unsafe.Sizeof(x))) // a byte of a file can take a hundred in memory
		if each(&x); c.bad {                            // x may refer to anything
			return
		}
		*list = append(*list, x)
	}
}

// carryMap carries a map of at most limit elements, or nil as nil.
func carryMap[K cmp.Ordered, V any](c *carrier, m *map[K]V, limit int, each func(*K, *V)) {
	keys := slices.Sorted(maps.Keys(*m))
	if !c.reads() {
		carryList(c, &keys, limit, func(k *K) {
			v := (*m)[*k]
			each(k, &v)
		})
		return
	}
	var k K
	var values []V
	carryList(c, &keys, limit, func(to *K) {
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

// counts carries figures of allocations.
func (c *carrier) counts(list ...*count) {
	for _, x := range list {
		amount(c, &x.objects, maxSum)
		amount(c, &x.bytes, maxSum)
	}
}

// kind carries the kind of memory or of a driver object.
func (c *carrier) kind(x *Kind) {
	most(c, x, lastKind)
	c.check(*x != aliased)
}

// device carries the device of allocations or blocks.
func (c *carrier) device(x *int32) {
	num(c, x)
	c.check(*x >= CPUDevice && *x < maxDevices || *x == allDevices)
}

// opener tells the pieces of an opening.
type opener struct {
	carrier
	to        Books
	whole     bool // of a checkpoint
	piece     uint32
	kind      carriedKind         // of the current piece
	processes []*process          // those that are told
	member    map[*member]uint32  // their new numbers; nil: none
	site      map[*site]uint32    // new numbers
	pool      map[*pool]uint32    // likewise; they count from 1
	groups    map[*cohorts]uint32 // new number of their first site plus 1
}

// opening is the state of a ledger that takes the pieces of an opening.
type opening struct {
	pieces  uint32 // taken so far
	whole   bool   // all were taken
	rounded bool   // it has carryRounding

	// Until the end of the opening.
	endings uint64              // of the process with the most
	sites   []carriedSite       // by number
	pools   []carriedPool       // by number - 1
	warned  map[string]uint32   // number of the process that a warning is of
	figures map[*process]uint64 // sum of the figures of its sites that must not overflow
}

// carriedSite is a site of a process.
type carriedSite struct {
	process *process
	site    *site
}

// carriedPool is a pool of a process by its number.
type carriedPool struct {
	process *process
	number  uint32
}
