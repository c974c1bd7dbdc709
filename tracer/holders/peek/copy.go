// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunkShift = 20 // a chunk is 1 MiB of addresses
	chunkPages = 1 << (chunkShift - PageShift)
	pieceSize  = 8 << 20 // of the arena
)

type Page [PageSize]byte

// unreadable marks a page that was tried.
var unreadable = new(Page)

type chunk [chunkPages]*Page

// Copy is a copy of a process's memory in pages. Take fills it in one sweep, so that what it holds
// is of nearly one moment; a page that is missing is read from the process when it is needed. It
// forgets all pages and begins again when it reaches its limit.
type Copy struct {
	mem     Memory
	regions []Region
	limit   int // pages
	count   int
	chunks  map[uint64]*chunk
	recent  [256]struct {
		key uint64
		*chunk
	}
	arena    [][]byte // mapped, outside of Go's heap: it is gone when it is unmapped
	piece    int      // of arena, that is being filled
	used     int      // bytes of it
	bad      uint64   // reads of addresses that nothing backs
	whole    bool     // Take has copied everything that is resident
	taken    time.Duration
	pointers []uint64                   // into the stacks of threads that waited when the copy was taken
	err      error                      // of the arena
	Trace    func(address uint64) *Page // of tests: is asked for each page, which is not kept
}

// NewCopy returns an empty copy that keeps at most limit bytes. Close it after use.
func NewCopy(mem Memory, limit uint64) *Copy {
	return &Copy{mem: mem, regions: mem.Regions(), limit: int(max(min(limit, 1<<40)>>PageShift, 256)), chunks: map[uint64]*chunk{}}
}

// Close releases the memory of the copy.
func (c *Copy) Close() {
	for _, piece := range c.arena {
		unix.Munmap(piece)
	}
	*c = Copy{mem: c.mem, regions: c.regions, limit: c.limit, chunks: map[uint64]*chunk{}}
}

// Take copies all resident memory of a running process. It copies nothing where that is more than
// the limit: then pages are read when they are needed.
func (c *Copy) Take(ctx context.Context) error {
	p, ok := c.mem.(*Process)
	if !ok {
		return nil // of a file nothing moves
	}
	if err := p.Refresh(); err != nil {
		return err
	}
	c.regions = p.regions
	spans, bytes := p.residentSpans()
	if bytes>>PageShift > uint64(c.limit) {
		return nil
	}
	begin := time.Now()
	for len(spans) > 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("copy its memory: %w", context.Cause(ctx))
		}
		var batch []Span
		batch, spans = cut(spans)
		if err := c.take(p, batch); err != nil {
			return err
		}
	}
	c.pointers = p.stackPointers() // now, so that the map is fresh while pages are copied
	c.taken, c.whole = time.Since(begin), true
	return p.alive()
}

// cut takes what one system call copies off the spans: at most maxBatch ranges and one piece.
func cut(spans []Span) (batch, rest []Span) {
	room := uint64(pieceSize)
	for len(spans) > 0 && len(batch) < maxBatch && room > 0 {
		s := spans[0]
		if s.Bytes() > room {
			batch = append(batch, Span{s.Start, s.Start + room})
			spans[0].Start += room
			break
		}
		batch, spans, room = append(batch, s), spans[1:], room-s.Bytes()
	}
	return batch, spans
}

// take copies one batch. A range that is gone by now is left out.
func (c *Copy) take(p *Process, batch []Span) error {
	for len(batch) > 0 {
		var want uint64
		for _, s := range batch {
			want += s.Bytes()
		}
		to, err := c.room(int(want))
		if err != nil {
			return err
		}
		n, err := readv(p.pid, to, batch)
		if err != nil && n <= 0 {
			n = 0
			if err == unix.ESRCH || err == unix.EPERM {
				return fmt.Errorf("copy its memory: %w", err)
			}
		}
		c.used += n &^ (PageSize - 1)
		batch = c.place(to[:n&^(PageSize-1)], batch)
	}
	return nil
}

// place enters copied pages. It returns what is left of the batch, without the page that could not
// be read.
func (c *Copy) place(from []byte, batch []Span) []Span {
	for i, s := range batch {
		for at := s.Start; at < s.End; at += PageSize {
			if len(from) < PageSize {
				batch[i].Start = at + PageSize
				if batch[i].Start >= batch[i].End {
					i++
				}
				return batch[i:]
			}
			c.set(at, (*Page)(from))
			from = from[PageSize:]
		}
	}
	return nil
}

// room returns the free rest of a piece of the arena, of n bytes at least.
func (c *Copy) room(n int) ([]byte, error) {
	if len(c.arena) > 0 && len(c.arena[c.piece])-c.used < n {
		c.piece, c.used = c.piece+1, 0
	}
	if c.piece == len(c.arena) {
		piece, err := unix.Mmap(-1, 0, pieceSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, fmt.Errorf("reserve memory for the copy: %w", err)
		}
		unix.Madvise(piece, unix.MADV_HUGEPAGE) // what is copied is read in no order
		c.arena = append(c.arena, piece)
	}
	return c.arena[c.piece][c.used : c.used+n], nil
}

func (c *Copy) set(address uint64, p *Page) {
	key := address >> chunkShift
	ch := c.chunks[key]
	if ch == nil {
		ch = new(chunk)
		c.chunks[key] = ch
	}
	if ch[address>>PageShift%chunkPages] == nil {
		c.count++
	}
	ch[address>>PageShift%chunkPages] = p
}

// Renew puts the pages of a later copy of the same process in place of this one's.
func (c *Copy) Renew(later *Copy) {
	for key, ch := range later.chunks {
		for k, p := range ch {
			if p == nil || p == unreadable {
				continue
			}
			if mine := c.chunks[key]; mine != nil && mine[k] != nil && mine[k] != unreadable {
				*mine[k] = *p
				continue
			}
			if c.count >= c.limit || c.err != nil {
				return
			}
			var to []byte
			if to, c.err = c.room(PageSize); c.err != nil {
				return
			}
			c.used += copy(to, p[:])
			c.set(key<<chunkShift|uint64(k)<<PageShift, (*Page)(to))
		}
	}
}

// Page returns the page that an address lies in, or nil.
func (c *Copy) Page(address uint64) *Page {
	key := address >> chunkShift
	r := &c.recent[key%uint64(len(c.recent))]
	if r.key != key || r.chunk == nil {
		ch := c.chunks[key]
		if ch == nil {
			return c.load(address)
		}
		r.key, r.chunk = key, ch
	}
	p := r.chunk[address>>PageShift%chunkPages]
	if p == nil {
		return c.load(address)
	}
	if p == unreadable {
		return nil
	}
	return p
}

// load reads a page that the copy lacks.
func (c *Copy) load(address uint64) *Page {
	if address >= AddressEnd || c.err != nil {
		return nil
	}
	if c.Trace != nil {
		return c.Trace(address)
	}
	r, ok := regionAt(c.regions, address)
	if !ok {
		return nil
	}
	if c.count >= c.limit {
		c.forget()
	}
	p := unreadable
	if !r.Forbidden() {
		var to []byte
		if to, c.err = c.room(PageSize); c.err != nil {
			return nil
		}
		clear(to)
		n, _ := c.mem.ReadAt(to, address&^(PageSize-1))
		if n > 0 {
			p = (*Page)(to)
			c.used += PageSize
		}
	}
	c.set(address, p)
	if p == unreadable {
		return nil
	}
	return p
}

// forget drops all pages.
func (c *Copy) forget() {
	clear(c.chunks)
	clear(c.recent[:])
	c.count, c.piece, c.used, c.whole = 0, 0, 0, false
}

// U64 reads a word; it is 0, and counted, where nothing can be read.
func (c *Copy) U64(address uint64) uint64 {
	o, key := address%PageSize, address>>chunkShift
	if r := &c.recent[key%uint64(len(c.recent))]; r.key == key && r.chunk != nil && o <= PageSize-8 { // as Page, without a call
		if p := r.chunk[address>>PageShift%chunkPages]; p != nil && p != unreadable {
			return binary.LittleEndian.Uint64(p[o:])
		}
	}
	if o <= PageSize-8 {
		if p := c.Page(address); p != nil {
			return binary.LittleEndian.Uint64(p[o:])
		}
		c.bad++
		return 0
	}
	var b [8]byte
	if !c.Read(b[:], address) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (c *Copy) U32(address uint64) uint32 {
	var b [4]byte
	if !c.Read(b[:], address) {
		return 0
	}
	return binary.LittleEndian.Uint32(b[:])
}

func (c *Copy) U8(address uint64) byte {
	if p := c.Page(address); p != nil {
		return p[address%PageSize]
	}
	c.bad++
	return 0
}

// Read fills b and reports whether all of it could be read.
func (c *Copy) Read(b []byte, address uint64) bool {
	for len(b) > 0 {
		p := c.Page(address)
		if p == nil || address >= AddressEnd {
			c.bad++
			return false
		}
		n := copy(b, p[address%PageSize:])
		b, address = b[n:], address+uint64(n)
	}
	return true
}

// Text reads a C string of at most 512 bytes.
func (c *Copy) Text(address uint64) (string, bool) {
	var b [512]byte
	for i := range b {
		p := c.Page(address + uint64(i))
		if p == nil {
			return "", false
		}
		if b[i] = p[(address+uint64(i))%PageSize]; b[i] == 0 {
			return string(b[:i]), true
		}
	}
	return "", false
}

// Memory returns what is copied.
func (c *Copy) Memory() Memory { return c.mem }

// Err returns why pages could not be kept, or nil.
func (c *Copy) Err() error { return c.err }

// Bad returns how often an address was read that nothing backs.
func (c *Copy) Bad() uint64 { return c.bad }

// Bytes returns how much the copy holds.
func (c *Copy) Bytes() uint64 { return uint64(c.count) << PageShift }

// Region returns the region that contains an address.
func (c *Copy) Region(address uint64) (Region, bool) { return regionAt(c.regions, address) }

// Refresh reads the memory map of a running process again: heaps grow.
func (c *Copy) Refresh() {
	if p, is := c.mem.(*Process); is && p.Refresh() == nil {
		c.regions = p.regions
	}
}

// VariablesEnd returns where the variables of a mapped library end that its file does not have; 0
// if it cannot be told, as of what does not run.
func (c *Copy) VariablesEnd(r Region) uint64 {
	if p, is := c.mem.(*Process); is {
		return p.variablesEnd(r)
	}
	return 0
}

// Regions, ReadAt and Symbols make a copy a Memory.
func (c *Copy) Regions() []Region { return c.regions }

// ReadAt reads from the copy, and what it lacks from the process.
func (c *Copy) ReadAt(b []byte, address uint64) (int, error) {
	for done := 0; done < len(b); {
		at := address + uint64(done)
		p := c.Page(at)
		if p == nil {
			return done, fmt.Errorf("read %#x of the copy: %w", at, errAbsent)
		}
		done += copy(b[done:], p[at%PageSize:])
	}
	return len(b), nil
}

// Symbols returns those of the process.
func (c *Copy) Symbols(names ...string) (map[string]uint64, error) { return c.mem.Symbols(names...) }
