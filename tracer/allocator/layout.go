// SPDX-License-Identifier: Apache-2.0

package allocator

import "slices"

const (
	objectSize = 4096 // of a device's allocator, at most
	blockSize  = 192  // of a Block, at most
	poolSize   = 512  // of a PrivatePool, at most
	maxDevices = 64
	maxSample  = 2000 // blocks of each kind that prove a layout

	activeRange = 160 // behind the last set, where the table of active blocks begins
)

// Layout is where one build of PyTorch has the fields of its allocator. A walk finds it, and proves
// it again each time. It has no addresses: keep it for a library's build, in a Layouts. It never
// changes.
type Layout struct {
	sets   []int // of the default pools: offsets of the sets' headers in a device's allocator
	pair   bool  // each pool has a set of blocks and one of unmapped blocks (since 2.1)
	active int   // the table of active blocks
	graphs int   // the table of private pools; 0: none was seen
	stats  int   // the counters; 0: unknown

	ptr, size, requested, prev, next, pool int // in a Block; requested -1: before 2.0
}

// setsOf returns the offsets of the sets in an object: 4 in pairs, or 2.
func (r *reader) setsOf(h []byte, at uint64) (sets []int) {
	for o := 0; o+setSize <= len(h) && len(sets) < 4; o += 8 {
		if r.isSet(h, at, o) {
			sets = append(sets, o)
		}
	}
	if len(sets) >= 2 && sets[1]-sets[0] != setSize || len(sets) == 3 {
		sets = sets[:2] // a pool has one set: the rest belongs to something else
	}
	return sets
}

// sample is what proves a layout: some blocks, and the set that each is in.
type sample struct {
	at    []uint64
	image map[uint64][]byte
	pools map[uint64]uint64 // of a block in a set: its pool's address
}

func (s *sample) load(r *reader, at []uint64) {
	r.each(blockSize, at, func(i int, b []byte) { s.image[at[i]] = slices.Clone(b) })
}

// few reports whether few contradict. While a process runs, many of a large sample may: what is not
// the field that is looked for agrees nowhere.
func few(bad, n int) bool { return n > 0 && (bad*20 <= n || n >= 100 && bad*2 < n) }

// calibrate finds the layout.
func (r *reader) calibrate(devices []uint64, sets []int) (*Layout, error) {
	l := &Layout{sets: sets, pair: len(sets) == 4}
	s := &sample{image: map[uint64][]byte{}, pools: map[uint64]uint64{}}
	for _, d := range devices {
		h := r.get(d, objectSize)
		for i, o := range sets {
			n := 0
			r.set(h, o, func(a uint64) {
				if n++; n <= maxSample {
					s.at, s.pools[a] = append(s.at, a), d+uint64(l.poolAt(sets, i))
				}
			})
		}
		active, ok := r.findActive(h, l)
		if !ok {
			return nil, &Error{Code: NoTable}
		}
		s.at = append(s.at, active[:min(len(active), maxSample)]...)
	}
	if len(s.at) == 0 {
		return nil, &Error{Code: NoBlocks}
	}
	s.at = s.at[:min(len(s.at), 4*maxSample)]
	s.load(r, s.at)
	if !r.findChain(s, l) {
		return nil, &Error{Code: NoChain, Blocks: len(s.at)}
	}
	if !s.findPool(l) {
		return nil, &Error{Code: NoPool, Blocks: len(s.at)}
	}
	if l.requested = l.size + 8; l.requested == l.pool {
		l.requested = -1
	}
	return l, nil
}

// poolAt returns the offset of the pool that the ith set belongs to: a pool begins with its first
// set.
func (l *Layout) poolAt(sets []int, i int) int {
	if l.pair {
		i &^= 1
	}
	return sets[i] - 8
}

// findActive finds the table of active blocks: the first table behind the last set.
func (r *reader) findActive(h []byte, l *Layout) (blocks []uint64, ok bool) {
	last := l.sets[len(l.sets)-1] + nodeSize
	for o := last; o < last+activeRange; o += 8 {
		if l.active != 0 && o != l.active {
			continue
		}
		blocks = blocks[:0]
		ok := r.table(h, o, 16, func(e []byte) { blocks = append(blocks, word(e, 8)) })
		n := int(min(word(h, o+24), maxBlocks))
		if ok || len(blocks) > 100 && few(max(n-len(blocks), len(blocks)-n), len(blocks)) {
			l.active = o
			return blocks, true
		}
	}
	return nil, false
}

// findChain finds the fields for which next->prev == this and next->ptr == ptr + size.
func (r *reader) findChain(s *sample, l *Layout) bool {
	best := 0
	aligned := s.aligned()
	for next := 0; next < blockSize; next += 8 {
		links := s.links(r, next)
		for prev := 0; prev < blockSize && len(links) > 0; prev += 8 {
			if prev == next || !few(count(links, func(a, b []byte, at uint64) bool { return word(b, prev) != at }), len(links)) {
				continue
			}
			for _, ptr := range aligned {
				for _, size := range aligned {
					bad := count(links, func(a, b []byte, _ uint64) bool { return word(b, ptr) != word(a, ptr)+word(a, size) })
					if ptr != size && few(bad, len(links)) && len(links)-bad > best { // of equals the first: the requested size follows the size
						best = len(links) - bad
						l.next, l.prev, l.ptr, l.size = next, prev, ptr, size
					}
				}
			}
		}
	}
	return best > 0
}

// aligned returns the fields that are multiples of 512 in nearly all blocks, and not 0.
func (s *sample) aligned() (fields []int) {
	for o := 0; o < blockSize; o += 8 {
		bad := 0
		for _, a := range s.at {
			if v := word(s.image[a], o); v == 0 || v%512 != 0 {
				bad++
			}
		}
		if few(bad, len(s.at)) {
			fields = append(fields, o)
		}
	}
	return fields[:min(len(fields), 8)] // a Block has three; each pair is tried
}

// link is a block and the one that a field leads to.
type link struct {
	at   uint64
	a, b []byte
}

func count(links []link, bad func(a, b []byte, at uint64) bool) (n int) {
	for _, k := range links {
		if bad(k.a, k.b, k.at) {
			n++
		}
	}
	return n
}

func (s *sample) links(r *reader, field int) (links []link) {
	var missing []uint64
	bad := 0
	for _, a := range s.at {
		to := word(s.image[a], field)
		switch {
		case to == 0 || to == a:
		case !r.pointer(to):
			bad++
		case s.image[to] == nil:
			missing = append(missing, to)
		}
	}
	if bad > 0 && !few(bad, len(s.at)) {
		return nil
	}
	s.load(r, missing)
	for _, a := range s.at {
		if to := word(s.image[a], field); to != 0 && to != a && s.image[to] != nil {
			links = append(links, link{a, s.image[a], s.image[to]})
		}
	}
	return links
}

// findPool finds the field that leads from each block of a set to the set's pool.
func (s *sample) findPool(l *Layout) bool {
	for o := 0; o < blockSize; o += 8 {
		bad := 0
		for a, pool := range s.pools {
			if b := s.image[a]; b != nil && word(b, o) != pool {
				bad++
			}
		}
		if few(bad, len(s.pools)) {
			l.pool = o
			return true
		}
	}
	return false
}
