// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Limits on what one reading takes. All that it reads is chosen by the process.
const (
	maxBytes  = 512 << 20
	maxBlocks = 1 << 21
	maxLib    = 8 << 20 // of variables of the library
	pageSize  = 4096
)

// Limits on one group of system calls.
const (
	pieceSize = 256 << 10 // bytes
	maxGap    = 512       // bytes between two objects that are read as one range
	maxSpan   = 16 << 10  // bytes of such a range
)

// Memory reads a process: peek.Process, or a recorded image. Its other methods are used where it
// has those of peek.Process: Scatter reads many blocks in one system call, File opens a mapped
// library to find a symbol, and Refresh follows a heap that grows.
type Memory interface {
	Regions() []peek.Region
	ReadAt(b []byte, address uint64) (int, error)
}

type scatterer interface{ Scatter() *peek.Scatter }

type fileOpener interface {
	File(r peek.Region) (*os.File, error)
}

type refresher interface{ Refresh() error }

// reader bounds and counts what is read.
type reader struct {
	Memory
	heap  []peek.Region // writable memory
	limit int           // bytes
	cost  Cost
	over  bool // a limit was reached: everything else reads as zero

	pauses int // that were made for locks

	scatter *peek.Scatter // nil: page by page
	spans   []peek.Span   // of the piece that is being read
	piece   []byte
}

func newReader(m Memory, limit int) *reader {
	r := &reader{Memory: m, limit: limit}
	r.listHeap()
	return r
}

// begin starts a reading, which has the limits to itself.
func (r *reader) begin() {
	r.cost, r.over, r.pauses = Cost{}, false, 0
	if m, ok := r.Memory.(scatterer); ok {
		r.scatter = m.Scatter()
	}
}

// end drops the buffers.
func (r *reader) end() { r.scatter, r.piece, r.spans = nil, nil, nil }

func (r *reader) listHeap() {
	r.heap = r.heap[:0]
	for _, g := range r.Regions() {
		if g.Readable && g.Writable && g.Private && !strings.HasPrefix(g.Path, "/dev/") {
			r.heap = append(r.heap, g)
		}
	}
}

// refresh reads the memory map again. It reports whether there is one to read.
func (r *reader) refresh() bool {
	m, ok := r.Memory.(refresher)
	if !ok || m.Refresh() != nil {
		return false
	}
	r.listHeap()
	return true
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

// read fills b with ranges, one after the other. What cannot be read is zero.
func (r *reader) read(b []byte, spans []peek.Span) {
	if r.scatter != nil {
		bytes, calls := r.scatter.ReadSpans(b, spans)
		r.cost.Bytes, r.cost.Calls = r.cost.Bytes+bytes, r.cost.Calls+calls
		return
	}
	r.cost.Bytes += len(b)
	for _, s := range spans {
		for at := s.Start; at < s.End; { // page by page: one may be missing
			n := min(int(pageSize-at%pageSize), int(s.End-at))
			if k, err := r.ReadAt(b[:n], at); err != nil {
				clear(b[max(k, 0):n])
			}
			r.cost.Calls++
			b, at = b[n:], at+uint64(n)
		}
	}
}

// get copies n bytes. What cannot be read is zero.
func (r *reader) get(a uint64, n int) []byte {
	if !r.take(n) || a >= peek.AddressEnd {
		return make([]byte, min(max(n, 0), pageSize))
	}
	b := make([]byte, n)
	r.read(b, []peek.Span{{Start: a, End: a + uint64(n)}})
	return b
}

// each reads size bytes, at most a page, at each address, and shows them to see, in the same order:
// b is valid during the call. Addresses are rounded down to multiples of 8. Where they ascend, near
// ones are read as one range. What cannot be read is zero; it ends early where a limit is reached.
func (r *reader) each(size int, at []uint64, see func(i int, b []byte)) {
	if want := min(pieceSize, (size+maxGap)*min(len(at), pieceSize)); len(r.piece) < want {
		r.piece = make([]byte, want)
	}
	for first := 0; first < len(at); {
		count, n := r.gather(size, at[first:])
		if !r.take(n) {
			return
		}
		r.read(r.piece[:n], r.spans)
		k, begin := 0, 0 // the range of the address, and where it begins in the piece
		for i := range count {
			a := clip(at[first+i])
			for a < r.spans[k].Start || a+uint64(size) > r.spans[k].End {
				begin += int(r.spans[k].Bytes())
				k++
			}
			o := begin + int(a-r.spans[k].Start)
			see(first+i, r.piece[o:o+size])
		}
		first += count
	}
}

// gather collects the ranges of the next piece, of count addresses and n bytes.
func (r *reader) gather(size int, at []uint64) (count, n int) {
	r.spans = r.spans[:0]
	for _, a := range at {
		a = clip(a)
		end := a + uint64(size)
		k := len(r.spans) - 1
		near := k >= 0 && a >= r.spans[k].Start && a <= r.spans[k].End+maxGap && end <= r.spans[k].Start+maxSpan
		more := size
		if near {
			more = int(max(end, r.spans[k].End) - r.spans[k].End)
		}
		if n+more > len(r.piece) {
			break
		}
		if near {
			r.spans[k].End += uint64(more)
		} else {
			r.spans = append(r.spans, peek.Span{Start: a, End: end})
		}
		count, n = count+1, n+more
	}
	return count, n
}

// clip rounds an address down, and makes 0 of what is none.
func clip(a uint64) uint64 {
	if a >= peek.AddressEnd {
		return 0
	}
	return a &^ 7
}

// U64 returns a word of memory of any kind, such as a library's constants. With Text it lets peek
// read C++ type information.
func (r *reader) U64(a uint64) uint64 {
	var b [8]byte
	if n, _ := r.ReadAt(b[:], a); n < len(b) || !r.take(len(b)) {
		return 0
	}
	r.cost.Bytes += len(b)
	r.cost.Calls++
	return word(b[:], 0)
}

// Text returns a C string of at most 255 bytes.
func (r *reader) Text(a uint64) (string, bool) {
	var b [256]byte
	n, _ := r.ReadAt(b[:], a) // shorter at the end of a library
	if !r.take(len(b)) {
		return "", false
	}
	r.cost.Bytes += len(b)
	r.cost.Calls++
	end := bytes.IndexByte(b[:max(n, 0)], 0)
	return string(b[:max(end, 0)]), end >= 0
}

// word returns the word at an offset, or 0 beyond the end.
func word(b []byte, o int) uint64 {
	if o < 0 || o+8 > len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[o:])
}
