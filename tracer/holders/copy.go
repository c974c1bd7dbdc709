// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunkShift = 20 // a chunk is 1 MiB of addresses
	chunkPages = 1 << (chunkShift - pageShift)
	pieceSize  = 8 << 20 // of the arena
)

type page [pageSize]byte

// unreadable marks a page that was tried.
var unreadable = new(page)

type chunk [chunkPages]*page

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
	trace    func(address uint64) *page // of tests: is asked for each page, which is not kept
}

// NewCopy returns an empty copy that keeps at most limit bytes. Close it after use.
func NewCopy(mem Memory, limit uint64) *Copy {
	return &Copy{mem: mem, regions: mem.Regions(), limit: int(max(min(limit, 1<<40)>>pageShift, 256)), chunks: map[uint64]*chunk{}}
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
	if err := p.refresh(); err != nil {
		return err
	}
	c.regions = p.regions
	spans, bytes := p.residentSpans()
	if bytes>>pageShift > uint64(c.limit) {
		return nil
	}
	begin := time.Now()
	for len(spans) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("copy the memory of process %d: %w", p.pid, err)
		}
		var batch []span
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
func cut(spans []span) (batch, rest []span) {
	room := uint64(pieceSize)
	for len(spans) > 0 && len(batch) < maxBatch && room > 0 {
		s := spans[0]
		if s.bytes() > room {
			batch = append(batch, span{s.start, s.start + room})
			spans[0].start += room
			break
		}
		batch, spans, room = append(batch, s), spans[1:], room-s.bytes()
	}
	return batch, spans
}

// take copies one batch. A range that is gone by now is left out.
func (c *Copy) take(p *Process, batch []span) error {
	for len(batch) > 0 {
		var want uint64
		for _, s := range batch {
			want += s.bytes()
		}
		to, err := c.room(int(want))
		if err != nil {
			return err
		}
		n, err := readv(p.pid, to, batch)
		if err != nil && n <= 0 {
			n = 0
			if err == unix.ESRCH || err == unix.EPERM {
				return fmt.Errorf("copy the memory of process %d: %w", p.pid, err)
			}
		}
		c.used += n &^ (pageSize - 1)
		batch = c.place(to[:n&^(pageSize-1)], batch)
	}
	return nil
}

// place enters copied pages. It returns what is left of the batch, without the page that could not be read.
func (c *Copy) place(from []byte, batch []span) []span {
	for i, s := range batch {
		for at := s.start; at < s.end; at += pageSize {
			if len(from) < pageSize {
				batch[i].start = at + pageSize
				if batch[i].start >= batch[i].end {
					i++
				}
				return batch[i:]
			}
			c.set(at, (*page)(from))
			from = from[pageSize:]
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
		c.arena = append(c.arena, piece)
	}
	return c.arena[c.piece][c.used : c.used+n], nil
}

func (c *Copy) set(address uint64, p *page) {
	key := address >> chunkShift
	ch := c.chunks[key]
	if ch == nil {
		ch = new(chunk)
		c.chunks[key] = ch
	}
	if ch[address>>pageShift%chunkPages] == nil {
		c.count++
	}
	ch[address>>pageShift%chunkPages] = p
}

// page returns the page that an address lies in, or nil.
func (c *Copy) page(address uint64) *page {
	key := address >> chunkShift
	r := &c.recent[key%uint64(len(c.recent))]
	if r.key != key || r.chunk == nil {
		ch := c.chunks[key]
		if ch == nil {
			return c.load(address)
		}
		r.key, r.chunk = key, ch
	}
	p := r.chunk[address>>pageShift%chunkPages]
	if p == nil {
		return c.load(address)
	}
	if p == unreadable {
		return nil
	}
	return p
}

// load reads a page that the copy lacks.
func (c *Copy) load(address uint64) *page {
	if address >= addressEnd || c.err != nil {
		return nil
	}
	if c.trace != nil {
		return c.trace(address)
	}
	r, ok := regionAt(c.regions, address)
	if !ok {
		return nil
	}
	if c.count >= c.limit {
		c.forget()
	}
	p := unreadable
	if !r.forbidden() {
		var to []byte
		if to, c.err = c.room(pageSize); c.err != nil {
			return nil
		}
		clear(to)
		n, _ := c.mem.ReadAt(to, address&^(pageSize-1))
		if n > 0 {
			p = (*page)(to)
			c.used += pageSize
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

// u64 reads a word; it is 0, and counted, where nothing can be read.
func (c *Copy) u64(address uint64) uint64 {
	if o := address % pageSize; o <= pageSize-8 {
		if p := c.page(address); p != nil {
			return binary.LittleEndian.Uint64(p[o:])
		}
		c.bad++
		return 0
	}
	var b [8]byte
	if !c.read(b[:], address) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (c *Copy) u32(address uint64) uint32 {
	var b [4]byte
	if !c.read(b[:], address) {
		return 0
	}
	return binary.LittleEndian.Uint32(b[:])
}

func (c *Copy) u8(address uint64) byte {
	if p := c.page(address); p != nil {
		return p[address%pageSize]
	}
	c.bad++
	return 0
}

// read fills b and reports whether all of it could be read.
func (c *Copy) read(b []byte, address uint64) bool {
	for len(b) > 0 {
		p := c.page(address)
		if p == nil || address >= addressEnd {
			c.bad++
			return false
		}
		n := copy(b, p[address%pageSize:])
		b, address = b[n:], address+uint64(n)
	}
	return true
}

// text reads a C string of at most 512 bytes.
func (c *Copy) text(address uint64) (string, bool) {
	var b [512]byte
	for i := range b {
		p := c.page(address + uint64(i))
		if p == nil {
			return "", false
		}
		if b[i] = p[(address+uint64(i))%pageSize]; b[i] == 0 {
			return string(b[:i]), true
		}
	}
	return "", false
}

// Regions, ReadAt and Symbols make a copy a Memory.
func (c *Copy) Regions() []Region { return c.regions }

// ReadAt reads from the copy, and what it lacks from the process.
func (c *Copy) ReadAt(b []byte, address uint64) (int, error) {
	for done := 0; done < len(b); {
		at := address + uint64(done)
		p := c.page(at)
		if p == nil {
			return done, fmt.Errorf("read %#x of the copy: %w", at, errAbsent)
		}
		done += copy(b[done:], p[at%pageSize:])
	}
	return len(b), nil
}

// Symbols returns those of the process.
func (c *Copy) Symbols(names ...string) (map[string]uint64, error) { return c.mem.Symbols(names...) }
