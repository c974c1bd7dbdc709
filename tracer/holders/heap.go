// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

const (
	maxBlock     = 4 << 10 // bytes from the begin of a chunk to a word of it
	maxBack      = 1 << 10 // bytes from the begin of a Python object to an address that it holds
	maxVector    = 1 << 20 // bytes
	maxChunk     = 1 << 16 // bytes of a C++ object that are looked at
	unknownChunk = 512     // of one whose size the allocator does not tell
	tcache       = 0x288   // bytes of the list of free chunks that each thread has
)

// heap finds what lies in a process's memory: objects of Python and of C++, and the blocks that
// malloc and Python's allocator have given out.
type heap struct {
	py    *python
	cpp   *rtti
	block peek.Span // of malloc, where the last word was found
}

func (h *heap) isTensor(a uint64) bool {
	t := h.py.typeOf(a)
	return t != nil && t.tensor
}

// isArray reports whether three words can be those of a std::vector: begin, end, end of its memory.
// The vector fills a chunk of malloc: words left over from several vectors would have all that lies
// between them.
func (h *heap) isArray(begin, end, room uint64) bool {
	const mapped, rounding = 2, 32
	if !peek.Pointer(begin) || begin&15 != 0 || end <= begin || room < end || room-begin > maxVector || (end|room)&7 != 0 {
		return false
	}
	n, most := h.chunk(begin), room-begin+rounding
	if h.py.U64(begin-8)&mapped != 0 {
		most += peek.PageSize
	}
	return room-begin <= n && n <= most && h.wholeChunk(begin)
}

// chunk returns the size of the malloc chunk that begins at an address, as glibc writes it in front
// of it, or 0.
func (h *heap) chunk(a uint64) uint64 {
	n := h.py.U64(a-8) &^ 7
	if a%16 != 0 || n%16 != 0 || n < 32 || n > 1<<24 {
		return 0
	}
	return n - 8
}

// wholeChunk reports whether a chunk begins at an address: the next one says that this is in use,
// or it has a mapping of its own.
func (h *heap) wholeChunk(a uint64) bool {
	const mapped = 2
	n := h.chunk(a)
	if h.py.U64(a-8)&mapped != 0 {
		return n > 0 && (a-16)%peek.PageSize == 0 && (n+24)%peek.PageSize <= 16 // a recent glibc counts 16 bytes less
	}
	next := h.py.U64(a + n)
	return n > 0 && next&1 == 1 && next&^7 >= 32 && next&^7 < 1<<40
}

// extent returns how much of a C++ object can be looked at.
func (h *heap) extent(a uint64) uint64 {
	if h.cpp.classOf(a - 16).is(roleShared) {
		if n := h.chunk(a - 16); n > 16 {
			return min(n-16, maxChunk)
		}
	} else if n := h.chunk(a); n > 0 {
		return min(n, maxChunk)
	}
	return unknownChunk
}

// blockAt returns where the block begins that Python's allocator or malloc has given out and that
// a word is in, or 0.
func (h *heap) blockAt(at uint64) uint64 {
	if a := h.poolBlock(at); a != 0 {
		return a
	}
	for a := at &^ 15; a+maxBlock > at && a > 1<<16; a -= 16 {
		if n := h.chunk(a); n != 0 && n > at-a && h.wholeChunk(a) {
			if n == tcache && h.cpp.classOf(a) == nil {
				return 0
			}
			h.block = peek.Span{Start: a, End: a + n}
			return a
		}
	}
	if h.block.Start <= at && at < h.block.End {
		return h.block.Start // words come in the order of their addresses
	}
	return 0
}

// poolBlock returns the block of a pool of CPython's allocator. The pool's header proves itself:
// how far the last block is from its begin.
func (h *heap) poolBlock(at uint64) uint64 {
	const header = 48
	for _, size := range []uint64{4 << 10, 16 << 10} {
		pool := at &^ (size - 1)
		class, last := h.py.U32(pool+36), h.py.U32(pool+44)
		block := 16 * (uint64(class) + 1)
		if class < 64 && uint64(last) == size-block && h.py.U32(pool) <= uint32(size/block) && at >= pool+header {
			return at - (at-pool-header)%block
		}
	}
	return 0
}

// isVector reports whether a word begins a std::vector that has another word in use: its begin, its
// end, the end of its memory.
func (h *heap) isVector(at, word uint64) bool {
	begin, end, room := h.py.U64(at), h.py.U64(at+8), h.py.U64(at+16)
	return begin <= word && word < end && h.isArray(begin, end, room)
}

// inTensors reports whether a word is in a block that has only tensors from its begin up to the
// word. In a free block, malloc has overwritten the begin.
func (h *heap) inTensors(at uint64) bool {
	block := h.blockAt(at)
	if block == 0 {
		return false
	}
	for a := block; a <= at; a += 8 {
		if v := h.py.U64(a); v != 0 && !h.cpp.classOf(v).is(roleTensor) {
			return false
		}
	}
	return true
}

// objectAt returns the Python object that has a word of its own at a place, or 0. It begins in
// front of the word, with its head at the begin of the block that Python or malloc has given out.
func (h *heap) objectAt(place hit) uint64 {
	if place.form == formInt {
		a := place.at - intDigits
		if t := h.py.typeOf(a); t != nil && t.flags&flagInt != 0 && h.py.isTwoDigits(a) {
			return a
		}
		return 0
	}
	return h.objectIn(h.blockAt(place.at), place.at)
}

// objectIn is objectAt for a block that is known, or 0.
func (h *heap) objectIn(block, at uint64) uint64 {
	if block != 0 {
		for _, head := range []uint64{0, gcHead, 2 * gcHead} {
			if h.covers(block+head, at) {
				return block + head
			}
		}
		return 0
	}
	for a := at - 16; at-a < maxBack && a > 1<<16; a -= 8 {
		if h.covers(a, at) {
			return a
		}
	}
	return 0
}

// covers reports whether an object begins at an address and has a word of its own at another.
func (h *heap) covers(a, at uint64) bool {
	t := h.py.typeOf(a)
	if t == nil || !h.py.isLive(a) || !t.plain() || at < a+16 {
		return false
	}
	n := uint64(0)
	if t.item != 0 {
		n = min(h.py.U64(a+obSize), maxBack)
	}
	return at-a < t.basic+n*t.item
}
