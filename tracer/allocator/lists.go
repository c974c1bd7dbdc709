// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/vramprof/vramprof/tracer/clock"
)

// Entries of the asynchronous allocator's table: a distance, an address, a table of the streams
// that use it, the stream that it was allocated on, its device, its size, and whether it was
// captured in a graph.
const (
	asyncSize   = 80
	asyncUses   = 16
	asyncStream = asyncUses + tableSize
	asyncDevice = asyncStream + 8
	asyncBytes  = asyncDevice + 8
)

// A pluggable allocator keeps a lock and a std::unordered_map from addresses to a size, a device
// and a stream.
const (
	pluggableSize = 1024 // of the object, at most
	mapSize       = 56
	mapFirst      = 16 // of a map: its first node
	mapNode       = 40
	maxRounds     = 64 // of following the nodes of a map
)

// mutexSize returns the size of a std::mutex, which is in front of the map.
func mutexSize() uint64 {
	if runtime.GOARCH == "arm64" {
		return 48
	}
	return 40
}

// asyncTable finds the table of the asynchronous allocator among the library's variables: the
// largest one whose entries all are what its entries are.
func (l *library) asyncTable() (at uint64, err error) {
	most := uint64(0)
	for _, g := range l.data {
		b := l.get(g.Start, int(g.End-g.Start))
		for o := 0; o+tableSize <= len(b) && !l.over; o += 8 {
			t, ok := l.tableAt(b, o)
			if !ok || t.count <= most {
				continue
			}
			good := true
			if l.entries(t, asyncSize, func(e []byte) { good = good && l.asyncEntry(e) }) && good {
				at, most = g.Start+uint64(o), t.count
			}
		}
	}
	if at == 0 {
		return 0, &Error{Code: NoBlocks}
	}
	return at, nil
}

// asyncEntry reports whether an entry can be one of the asynchronous allocator.
func (l *library) asyncEntry(e []byte) bool {
	_, uses := l.tableAt(e, asyncUses)
	return uses && likeBlock(word(e, 8), word(e, asyncBytes), word(e, asyncDevice)&0xff)
}

func likeBlock(address, size, device uint64) bool {
	return address != 0 && size != 0 && size < 1<<48 && device < maxDevices
}

// asyncBlocks reads the blocks of the asynchronous allocator. They are sorted by address.
func (r *reader) asyncBlocks(at uint64) (blocks []Block, ok bool) {
	ok = r.table(r.get(at, tableSize), 0, asyncSize, func(e []byte) {
		if len(blocks) < maxBlocks {
			blocks = append(blocks, listed(word(e, 8), word(e, asyncBytes), word(e, asyncDevice)&0xff, word(e, asyncStream)))
		}
	})
	return byAddress(blocks), ok
}

// listed returns a block of a backend that has no more of it.
func listed(address, size, device, stream uint64) Block {
	return Block{Address: address, Size: size, Requested: size, Stream: stream, Device: int(device % maxDevices), State: Active, Segment: -1}
}

func byAddress(blocks []Block) []Block {
	slices.SortFunc(blocks, func(a, b Block) int { return cmp.Compare(a.Address, b.Address) })
	return blocks
}

// pluggableMap finds the map in a pluggable allocator's object: the one with the most nodes, all of
// which are blocks.
func (l *library) pluggableMap(object uint64) (at uint64, err error) {
	most := -1
	h := l.get(object, pluggableSize)
	for o := 8; o+mapSize <= len(h); o += 8 {
		if !l.likeMap(h, object, o) {
			continue
		}
		blocks, ok := l.mapBlocks(object + uint64(o))
		if ok && len(blocks) > most && !slices.ContainsFunc(blocks, func(b Block) bool { return !likeBlock(b.Address, b.Size, 0) }) {
			at, most = object+uint64(o), len(blocks)
		}
	}
	if at == 0 {
		return 0, &Error{Code: NoTable}
	}
	return at, nil
}

// likeMap reports whether h[o:], which was read from at+o, can be a std::unordered_map: its only
// bucket is in itself, its load factor is 1.
func (l *library) likeMap(h []byte, at uint64, o int) bool {
	const one = 0x3f800000
	buckets, n, first, count := word(h, o), word(h, o+8), word(h, o+mapFirst), word(h, o+24)
	own := buckets == at+uint64(o)+48 && n == 1
	return word(h, o+32)&0xffffffff == one && (own || l.pointer(buckets) && n > 1) && n < maxSlots &&
		count <= maxBlocks && (count == 0) == (first == 0) && (first == 0 || l.pointer(first))
}

// mapBlocks reads the nodes of a std::unordered_map, and reports whether there are as many as its
// count says. A node leads to the next one, and each bucket to the node in front of its first one:
// most nodes are read in the first round.
func (r *reader) mapBlocks(at uint64) (blocks []Block, ok bool) {
	h := r.get(at, mapSize)
	buckets, n, count := word(h, 0), word(h, 8), word(h, 24)
	if count > maxBlocks || n > maxSlots {
		return nil, false
	}
	seen := make(map[uint64]bool, count)
	next := []uint64{}
	follow := func(node uint64) {
		if node != 0 && node&7 == 0 && node != at+mapFirst && !seen[node] && uint64(len(seen)) < count {
			seen[node] = true
			next = append(next, node)
		}
	}
	follow(word(h, mapFirst))
	for b := r.get(buckets, int(n)*8); len(b) >= 8; b = b[8:] {
		follow(word(b, 0))
	}
	for round := 0; len(next) > 0 && round < maxRounds && !r.over; round++ {
		nodes := next
		next = nil
		slices.Sort(nodes)
		r.each(mapNode, nodes, func(_ int, b []byte) {
			blocks = append(blocks, listed(word(b, 8), word(b, 16), word(b, 24)&0xff, word(b, 32)))
			follow(word(b, 0))
		})
	}
	return byAddress(blocks), uint64(len(blocks)) == count
}

// walkList reads the blocks of a backend without segments and counters. Exact then certifies that
// two reads have found the same blocks, as many as their container says; nothing bounds what is off
// otherwise.
func (a *Allocator) walkList(tries int) (*Snapshot, error) {
	s := &Snapshot{Backend: a.found.backend}
	var d Device
	for range max(1, tries) {
		d = Device{From: clock.Now()}
		var again []Block
		var whole, twice bool
		free := a.listFree()
		s.Blocks, whole = a.readList()
		again, twice = a.readList()
		d.LockFree = free && a.listFree()
		d.To = clock.Now()
		d.Exact = whole && twice && slices.Equal(s.Blocks, again)
		if s.Blocks = again; d.Exact {
			break
		}
	}
	if a.r.over {
		return nil, &Error{Code: TooMuch}
	}
	p := a.found
	p.removes = p.removes || len(s.Blocks) < p.most
	p.most = max(p.most, len(s.Blocks))
	if s.Superset = p.backend == Pluggable && !p.removes; s.Superset {
		d.Exact = false
	}
	last := 0
	for _, b := range s.Blocks {
		last = max(last, b.Device)
	}
	for i := range last + 1 {
		d.Index = i
		s.Devices = append(s.Devices, d)
	}
	s.Cost = a.r.cost
	return s, nil
}

func (a *Allocator) readList() ([]Block, bool) {
	if a.found.backend == Async {
		return a.r.asyncBlocks(a.found.list)
	}
	return a.r.mapBlocks(a.found.list)
}

// listFree reports whether a pluggable allocator's lock is free; that of the asynchronous one is
// not known.
func (a *Allocator) listFree() bool {
	return a.found.backend == Pluggable && unlocked(a.r.get(a.found.list-mutexSize(), 8))
}
