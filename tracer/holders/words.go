// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	granuleShift = 21      // addresses of GPUs are told apart in units of 2 MiB first
	maxGranules  = 1 << 22 // that all ranges together have
	maxHits      = 1 << 21
	maxPlaces    = 24 // at which one address is noted
)

// form is how a word of memory tells an address.
type form uint8

const (
	formPointer form = iota // the address
	formInt                 // a Python integer of that value
	formInside              // an address within
)

// hit is a place where a wanted address was found.
type hit struct {
	at   uint64 // of the word
	item int32  // index of what is wanted
	form form
}

// wanted are words to look for in all memory of a process. The filters let nearly all others pass
// after two loads.
type wanted struct {
	keys      []uint64 // open addressing, at most half full
	items     []int32  // 2*index, and 1 for a Python integer; -1: free
	low, high uint64   // the smallest and the largest key
	filter    []uint64 // bits by hash
	shift     uint     // of a hash, for a bit of the filter
	inside    []Range  // sorted; words that point into them are hits
	granule   []uint64 // bits by hash of the unit of 2 MiB
	from      uint64
	span      uint64
	places    []uint8 // hits of each item so far
	hits      []hit
	left      int // hits that had no room
}

const golden64 = 0x9e3779b97f4a7c15

// newWanted returns a set for n items.
func newWanted(n int) *wanted {
	bits := uint(12)
	for 1<<bits < 4*n && bits < 30 {
		bits++
	}
	w := &wanted{
		keys: make([]uint64, 1<<bits), items: make([]int32, 1<<bits), shift: 64 - (bits + 3),
		low: math.MaxUint64, filter: make([]uint64, 1<<(bits+3)/64), places: make([]uint8, n),
	}
	for i := range w.items {
		w.items[i] = -1
	}
	return w
}

// add enters an address.
func (w *wanted) add(address uint64, item int32) { w.put(address, 2*item) }

// addInt enters an address as CPython writes it into an integer of two digits of 30 bits.
func (w *wanted) addInt(address uint64, item int32) {
	const digit = 30
	if address>>digit != 0 && address>>(2*digit) == 0 {
		w.put(address&(1<<digit-1)|address>>digit<<32, 2*item+1)
	}
}

func (w *wanted) put(key uint64, item int32) {
	w.low, w.high = min(w.low, key), max(w.high, key)
	h := key * golden64
	w.filter[h>>w.shift/64] |= 1 << (h >> w.shift % 64)
	mask := uint64(len(w.keys) - 1)
	i := h >> (w.shift + 3)
	for ; w.items[i] >= 0; i = (i + 1) & mask {
		if w.keys[i] == key && w.items[i] == item {
			return
		}
	}
	w.keys[i], w.items[i] = key, item
}

// addInside enters ranges, sorted by address, whose indices are the items.
func (w *wanted) addInside(ranges []Range) {
	if len(ranges) == 0 {
		return
	}
	w.inside, w.granule = ranges, make([]uint64, 1<<22/64)
	end, marked := uint64(0), 0
	for _, r := range ranges {
		end = max(end, r.end())
		for g := r.Address >> granuleShift; g<<granuleShift < r.end() && marked < maxGranules; g++ {
			h := g * golden64 >> 42
			w.granule[h/64] |= 1 << (h % 64)
			marked++
		}
	}
	w.from, w.span = ranges[0].Address, end-ranges[0].Address
}

// look notes the hits in a part of the memory, whose address is a multiple of 8.
func (w *wanted) look(base uint64, p []byte) {
	low, room, filter, shift, from, span := w.low, w.high-w.low, w.filter, w.shift, w.from, w.span
	for o := 0; len(p) >= 8; o, p = o+8, p[8:] {
		v := binary.LittleEndian.Uint64(p)
		if v-low <= room {
			if h := v * golden64; filter[h>>shift/64]>>(h>>shift%64)&1 != 0 {
				w.match(base+uint64(o), v, h)
			}
		}
		if v-from < span {
			w.matchInside(base+uint64(o), v)
		}
	}
}

func (w *wanted) match(at, v, h uint64) {
	mask := uint64(len(w.keys) - 1)
	for i := h >> (w.shift + 3); w.items[i] >= 0; i = (i + 1) & mask {
		if w.keys[i] == v {
			w.note(hit{at, w.items[i] / 2, form(w.items[i] & 1)})
		}
	}
}

func (w *wanted) matchInside(at, v uint64) {
	if h := v >> granuleShift * golden64 >> 42; w.granule[h/64]>>(h%64)&1 == 0 {
		return
	}
	i, exact := slices.BinarySearchFunc(w.inside, v, func(r Range, v uint64) int { return cmp.Compare(r.Address, v) })
	if !exact && i > 0 && v < w.inside[i-1].end() {
		w.note(hit{at, int32(i - 1), formInside})
	}
}

// note keeps a hit. Pointers inside use at most half of an item's places.
func (w *wanted) note(h hit) {
	limit := uint8(maxPlaces)
	if h.form == formInside {
		limit /= 2
	}
	if w.places[h.item] >= limit || len(w.hits) >= maxHits {
		w.left++
		return
	}
	w.places[h.item]++
	w.hits = append(w.hits, h)
}

// sweeper reads all memory of a process once more.
type sweeper struct {
	ctx  context.Context
	copy *peek.Copy
	late func() bool
}

// whole reports whether all that the process had in memory was copied.
func (w sweeper) whole() bool { return w.copy.Whole() }

// sweep visits all memory that is the process's own.
func (w sweeper) sweep(look func(base uint64, p []byte)) error {
	return w.copy.Sweep(w.ctx, w.late, look)
}
