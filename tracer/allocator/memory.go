// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Limits on what one reading takes. All that it reads is chosen by the process.
const (
	maxBytes  = 256 << 20
	maxBlocks = 1 << 21
	maxLib    = 8 << 20 // of variables of the library
	pageSize  = 4096
)

// Memory reads a process: peek.Process, or a recorded image. One with the method ReadEach of
// peek.Process reads many blocks in one system call.
type Memory interface {
	Regions() []peek.Region
	ReadAt(b []byte, address uint64) (int, error)
}

type batchReader interface {
	ReadEach(b []byte, size int, addresses []uint64) (bytes, calls int)
}

// reader bounds and counts what is read.
type reader struct {
	Memory
	heap  []peek.Region // writable memory
	limit int           // bytes
	cost  Cost
	over  bool // a limit was reached: everything else reads as zero
}

func newReader(m Memory, limit int) *reader {
	r := &reader{Memory: m, limit: limit}
	for _, g := range m.Regions() {
		if g.Readable && g.Writable && g.Private && !strings.HasPrefix(g.Path, "/dev/") {
			r.heap = append(r.heap, g)
		}
	}
	return r
}

// pointer reports whether a word is an address in writable memory, aligned as objects are.
func (r *reader) pointer(p uint64) bool {
	if p&7 != 0 || p == 0 {
		return false
	}
	_, found := slices.BinarySearchFunc(r.heap, p, func(g peek.Region, p uint64) int {
		switch {
		case g.End <= p:
			return -1
		case g.Start > p:
			return 1
		}
		return 0
	})
	return found
}

func (r *reader) take(n int) bool {
	if n < 0 || n > r.limit || r.cost.Bytes+n > r.limit {
		r.over = true
	}
	return !r.over
}

// each copies size bytes, at most a page, from each address. What cannot be read is zero.
func (r *reader) each(size int, at []uint64) []byte {
	if !r.take(size * len(at)) {
		return make([]byte, min(size*len(at), r.limit))
	}
	b := make([]byte, size*len(at))
	if m, ok := r.Memory.(batchReader); ok {
		bytes, calls := m.ReadEach(b, size, at)
		r.cost.Bytes, r.cost.Calls = r.cost.Bytes+bytes, r.cost.Calls+calls
		return b
	}
	for i, a := range at {
		p := b[i*size : (i+1)*size]
		if n, err := r.ReadAt(p, a); err != nil {
			clear(p[n:])
		}
		r.cost.Calls++
	}
	r.cost.Bytes += len(b)
	return b
}

// get copies n bytes. What cannot be read is zero.
func (r *reader) get(a uint64, n int) []byte {
	if !r.take(n) {
		return make([]byte, min(max(n, 0), pageSize))
	}
	out := make([]byte, 0, n+pageSize)
	if head := min(n, int(pageSize-a%pageSize)); head > 0 && head < pageSize {
		out = append(out, r.each(head, []uint64{a})...)
	}
	var pages []uint64
	for o := len(out); o < n; o += pageSize {
		pages = append(pages, a+uint64(o))
	}
	// The last page may be read beyond the range: pages are readable as a whole.
	out = append(out, r.each(pageSize, pages)...)
	return append(out, make([]byte, max(0, n-len(out)))...)[:n]
}

// word returns the word at an offset, or 0 beyond the end.
func word(b []byte, o int) uint64 {
	if o < 0 || o+8 > len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[o:])
}
