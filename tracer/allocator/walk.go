// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
)

const (
	maxPools = 1 << 14 // private pools of a device

	// Reads of a lock until it is seen free: some at once, the others after a pause, since a thread
	// may lose its CPU while it holds the lock. Pauses of one reading are at most 50 ms.
	maxPolls  = 64
	fastPolls = 24
	pollPause = 250 * time.Microsecond
	maxPauses = 200

	// In a Block, by position: its stream, and the number of other streams that use it.
	blockStream = 8
	streamUses  = 40
)

// rawBlock is a block as the process has it.
type rawBlock struct {
	at, ptr, size, requested, prev, next, pool, stream uint64

	state State
	freed bool // it was active, but nothing waits for it: it was freed meanwhile, or its memory is another Block's by now
}

type poolKey struct {
	id    PoolID
	small bool
}

// walk is one reading of one device. It keeps its buffers for the next one.
type walk struct {
	device  Device
	blocks  []rawBlock // by address of their memory
	pools   map[uint64]poolKey
	counted bool // all containers have as many entries as they say
	blind   bool // a block could not be read
	resting bool // the lock was free and no counter moved
	twice   int  // blocks in two containers

	keys    []uint64 // addresses of Blocks, with the state in the lowest bits
	spare   []rawBlock
	free    []rawBlock // that only neighbors showed
	segment []int32    // of each block, in the snapshot; -1: unknown
	runs    []run      // mapped memory, by the ends of chains
}

// sight is one look at a device's object.
type sight struct {
	object        []byte
	before, after uint64 // CLOCK_MONOTONIC in ns, around the read
	free          bool   // the lock
}

// look reads a device's object, again and again until its lock is free or the polls are used up.
func (r *reader) look(d uint64) (s sight) {
	for i := range maxPolls {
		if i >= fastPolls {
			if r.pauses == maxPauses {
				break
			}
			r.pauses++
			time.Sleep(pollPause)
		}
		s.before = clock.Now()
		s.object = r.get(d, objectSize)
		s.after = clock.Now()
		if s.free = unlocked(s.object); s.free || r.over {
			break
		}
	}
	return s
}

// unlocked reports whether the pthread_mutex_t that an object begins with is free.
func unlocked(object []byte) bool { return word(object, 0)&0xffffffff == 0 }

// read reads the containers of a device, then their blocks, then the counters again.
func (w *walk) read(r *reader, l *Layout, known *bounds, d uint64) {
	*w = walk{counted: true, pools: map[uint64]poolKey{}, blocks: w.blocks[:0], keys: w.keys[:0], spare: w.spare[:0], segment: w.segment[:0]}
	begin := r.look(d)
	w.collect(r, l, d, begin.object)
	w.readBlocks(r, l)
	w.sortBlocks()
	w.addLinked(r, l)
	end := r.look(d)
	w.device.From, w.device.To, w.device.LockFree = begin.before, end.after, begin.free && end.free
	w.check(l, known, begin.object, end.object)
}

// add notes a Block that a container leads to.
func (w *walk) add(a uint64, s State) {
	if a == 0 || a&7 != 0 || len(w.keys) == maxBlocks {
		w.counted = false
		return
	}
	w.keys = append(w.keys, a|uint64(s))
}

// addSets adds the blocks of the pools in an object.
func (w *walk) addSets(r *reader, l *Layout, object []byte, base uint64, sets []int, id PoolID) {
	for i, o := range sets {
		state := Inactive
		if l.pair && i%2 == 1 {
			state = Unmapped
		}
		ok := r.set(object, o, func(a uint64) { w.add(a, state) })
		w.counted = w.counted && ok
		w.pools[base+uint64(l.poolAt(sets, i))] = poolKey{id, i >= len(sets)/2}
	}
}

// collect reads all containers.
func (w *walk) collect(r *reader, l *Layout, d uint64, h []byte) {
	w.addSets(r, l, h, d, l.sets, PoolID{})
	if t, ok := r.tableAt(h, l.active); !ok {
		w.counted = false
	} else {
		w.keys = slices.Grow(w.keys, int(min(t.count, maxBlocks)))
		ok := r.entries(t, 16, func(e []byte) { w.add(word(e, 8), Active) })
		w.counted = w.counted && ok
	}
	if l.graphs == 0 {
		l.graphs = r.findGraphs(h, l)
	}
	if l.graphs != 0 {
		w.collectPrivate(r, l, h)
	}
	w.dropTwice()
}

// privatePool is an entry of the table of private pools.
type privatePool struct {
	id PoolID
	at uint64
}

func (w *walk) collectPrivate(r *reader, l *Layout, h []byte) {
	var pools []privatePool
	ok := r.table(h, l.graphs, 32, func(e []byte) {
		if len(pools) < maxPools {
			pools = append(pools, privatePool{PoolID{word(e, 8), word(e, 16)}, word(e, 24)})
		}
	})
	w.counted = w.counted && ok
	for _, p := range pools {
		object := r.get(p.at, poolSize)
		sets := r.setsOf(object, p.at)
		if len(sets) != len(l.sets) {
			w.counted = false
			continue
		}
		w.addSets(r, l, object, p.at, sets, p.id)
	}
}

// findGraphs finds the table of private pools, whose entries are an id of two words and a pointer.
func (r *reader) findGraphs(h []byte, l *Layout) int {
	for o := l.active + tableSize; o+tableSize <= len(h); o += 8 {
		pool := uint64(0)
		ok := r.table(h, o, 32, func(e []byte) { pool = word(e, 24) })
		if ok && r.pointer(pool) && len(r.setsOf(r.get(pool, poolSize), pool)) == len(l.sets) {
			return o
		}
	}
	return 0
}

// dropTwice sorts the addresses and counts those of two containers, between which a block moved.
func (w *walk) dropTwice() {
	slices.Sort(w.keys)
	kept := w.keys[:0]
	for _, k := range w.keys {
		if n := len(kept); n > 0 && (kept[n-1]^k)&^7 == 0 {
			w.twice++
			continue
		}
		kept = append(kept, k)
	}
	w.keys = kept
}

func (w *walk) readBlocks(r *reader, l *Layout) {
	w.blocks = slices.Grow(w.blocks, len(w.keys))
	r.each(l.blockEnd(), w.keys, func(i int, x []byte) {
		b := l.block(x, w.keys[i]&^7, State(w.keys[i]&7))
		w.blind = w.blind || b.size == 0
		w.blocks = append(w.blocks, b)
	})
}

// blockEnd returns how many bytes of a Block have all fields.
func (l *Layout) blockEnd() int {
	return max(l.ptr, l.size, l.prev, l.next, l.pool, l.requested) + 16
}

// block returns the Block that was read from an address, where a container had it in a state.
func (l *Layout) block(x []byte, at uint64, state State) rawBlock {
	b := rawBlock{at: at, state: state, ptr: word(x, l.ptr), size: word(x, l.size), prev: word(x, l.prev), next: word(x, l.next), pool: word(x, l.pool), stream: word(x, blockStream)}
	if b.requested = b.size; l.requested >= 0 {
		b.requested = word(x, l.requested)
	}
	switch allocated, events := x[l.ptr+8], word(x, l.next+8)&0xffffffff; {
	case state == Active && allocated == 0:
		b.state = PendingFree
		b.freed = events == 0 && word(x, streamUses) == 0
	case state == Inactive && allocated == 1: // meanwhile
		b.state = Active
	}
	return b
}

// position is a block's place in a list that is sorted.
type position struct {
	key   uint64
	index uint32
}

// sortBlocks sorts the blocks by the address of their memory.
func (w *walk) sortBlocks() {
	if slices.IsSortedFunc(w.blocks, func(a, b rawBlock) int { return cmp.Compare(a.ptr, b.ptr) }) {
		return
	}
	order := make([]position, len(w.blocks))
	for i, b := range w.blocks {
		order[i] = position{b.ptr, uint32(i)}
	}
	sorted := slices.Grow(w.spare, len(w.blocks))
	for _, p := range radix(order) {
		sorted = append(sorted, w.blocks[p.index])
	}
	w.blocks, w.spare = sorted, w.blocks[:0]
}

// radix sorts by keys, digit by digit from the lowest bit in which they differ.
func radix(list []position) []position {
	const digit = 11
	differ := uint64(0)
	for _, p := range list {
		differ |= p.key ^ list[0].key
	}
	other := make([]position, len(list))
	for shift := bits.TrailingZeros64(differ); shift < 64 && differ>>shift != 0; shift += digit {
		var starts [1 << digit]uint32
		for _, p := range list {
			starts[p.key>>shift%(1<<digit)]++
		}
		sum := uint32(0)
		for i, n := range starts {
			starts[i], sum = sum, sum+n
		}
		for _, p := range list {
			at := &starts[p.key>>shift%(1<<digit)]
			other[*at] = p
			*at++
		}
		list, other = other, list
	}
	return list
}

// check compares the blocks with each other and with the counters, and the counters before and
// after. known has the bounds of segments that an earlier walk proved.
func (w *walk) check(l *Layout, known *bounds, before, after []byte) {
	s := w.sum()
	end := l.sets[0] - 8
	if l.stats == 0 {
		l.stats = findStats(before[:end], s, l.requested >= 0, w.device.LockFree && bytes.Equal(before[8:end], after[8:end]))
	}
	w.resting = w.device.LockFree && l.stats != 0 && bytes.Equal(before[8:end], after[8:end])
	was, is := countersAt(before[:end], l), countersAt(after[:end], l)
	w.device.Counters, w.device.Steady = is, steady(&was, &is)
	w.device.Given = is.Allocations.Allocated - was.Allocations.Allocated
	w.device.Exact = w.resting && s.equals(was) && w.counted && w.device.Contradicted == 0
	if !w.device.Exact {
		w.dropGone()
		w.device.OffBlocks = apart(s.allocations, was.Allocations.Current) + moved(was.Allocations, is.Allocations)
		w.device.OffBytes = apart(s.allocated, was.Allocated.Current) + moved(was.Allocated, is.Allocated)
	}
	w.bound(known, &was, &is)
}

// dropGone makes those blocks inactive that were freed during the walk, and drops those whose Block
// was deleted: its memory was something else by then.
func (w *walk) dropGone() {
	kept := w.blocks[:0]
	for _, b := range w.blocks {
		if b.freed {
			b.state = Inactive
		}
		if b.sized() && b.ptr != 0 && b.ptr%64 == 0 {
			kept = append(kept, b)
		}
	}
	w.blocks = kept
}

// sized reports whether a block has a size that PyTorch gives out.
func (b *rawBlock) sized() bool { return b.size != 0 && b.size%512 == 0 }

// moved returns by how much a counter was moved, in both directions.
func moved(was, is Stat) uint64 { return is.Allocated - was.Allocated + is.Freed - was.Freed }

// sum adds the blocks up and counts those that their neighbors contradict: by address, the next
// block of a segment is the neighbor in the list.
func (w *walk) sum() (s sums) {
	bad := w.twice
	last := ^uint64(0) // pool that was found last
	for i, b := range w.blocks {
		s.add(b)
		pool := b.pool == last
		if !pool {
			if _, pool = w.pools[b.pool]; pool {
				last = b.pool
			}
		}
		ok := pool && b.sized()
		if b.next != 0 {
			ok = ok && i+1 < len(w.blocks) && follows(b, w.blocks[i+1])
		}
		if b.prev != 0 {
			ok = ok && i > 0 && w.blocks[i-1].at == b.prev && w.blocks[i-1].next == b.at
		}
		if !ok {
			bad++
		}
	}
	w.device.Contradicted = bad
	return s
}

func follows(b, next rawBlock) bool {
	return next.at == b.next && next.prev == b.at && next.ptr == b.ptr+b.size && next.pool == b.pool
}

// rank orders walks of one device: exact ones, those that events of their window complete, the
// others.
func (w *walk) rank() int {
	switch {
	case w.device.Exact:
		return 2
	case w.device.LockFree:
		return 1
	}
	return 0
}
