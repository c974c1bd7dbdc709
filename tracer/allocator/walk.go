// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"cmp"
	"slices"
)

// Read reads the allocator of a process. It tries at most some times to find each device at rest, and
// takes the last walk otherwise. A nil layout is found; the one to keep for this build is returned.
func Read(m Memory, known *Layout, tries int) (*Snapshot, *Layout, error) {
	return read(newReader(m, maxBytes), known, tries)
}

func read(r *reader, known *Layout, tries int) (*Snapshot, *Layout, error) {
	devices, sets, err := r.devices()
	if err != nil {
		return nil, known, err
	}
	l := known
	if l == nil || !slices.Equal(l.sets, sets) {
		if l, err = r.calibrate(devices, sets); err != nil {
			return nil, known, err
		}
	} else {
		copied := *l
		l = &copied
	}
	snapshot := &Snapshot{}
	for i, d := range devices {
		var w *walk
		for try := 0; try < max(1, tries) && (w == nil || !w.device.Exact); try++ {
			if w = r.walk(l, d); w.resting && !w.device.Exact {
				return nil, known, &Error{Code: Contradicted, Blocks: len(w.raw), Bad: w.device.Contradicted}
			}
		}
		if r.over {
			return nil, known, &Error{Code: TooMuch}
		}
		if l.stats == 0 {
			return nil, known, &Error{Code: NoCounters, Blocks: len(w.raw)}
		}
		w.device.Index = i
		w.export(snapshot, i)
	}
	slices.SortFunc(snapshot.Blocks, func(a, b Block) int { return cmp.Compare(a.Address, b.Address) })
	snapshot.Cost = r.cost
	return snapshot, l, nil
}

// rawBlock is a block as the process has it.
type rawBlock struct {
	at, ptr, size, requested, prev, next, pool, stream uint64
	state                                              State
}

type poolKey struct {
	id    PoolID
	small bool
}

// walk is one reading of one device.
type walk struct {
	device  Device
	raw     []rawBlock
	index   map[uint64]int // by address of the Block
	pools   map[uint64]poolKey
	counted bool // all containers have as many entries as they say
	resting bool // the lock was free and no counter moved
}

// walk reads the containers of a device, then their blocks, then the counters again.
func (r *reader) walk(l *Layout, d uint64) *walk {
	h := r.get(d, objectSize)
	w := &walk{pools: map[uint64]poolKey{}, counted: true}
	var at []uint64
	var states []State
	add := func(values []uint64, ok bool, s State) {
		w.counted = w.counted && ok
		for _, a := range values[:min(len(values), maxBlocks-min(len(at), maxBlocks))] {
			at, states = append(at, a), append(states, s)
		}
	}
	addSets := func(h []byte, base uint64, sets []int, id PoolID) {
		for i, o := range sets {
			state := Inactive
			if l.pair && i%2 == 1 {
				state = Unmapped
			}
			values, ok := r.set(h, o)
			add(values, ok, state)
			w.pools[base+uint64(l.poolAt(sets, i))] = poolKey{id, i >= len(sets)/2}
		}
	}
	addSets(h, d, l.sets, PoolID{})
	entries, ok := r.table(h, l.active, 16)
	var active []uint64
	for _, e := range entries {
		active = append(active, word(e, 8))
	}
	add(active, ok, Active)
	if l.graphs == 0 {
		l.graphs = r.findGraphs(h, l)
	}
	if l.graphs != 0 {
		entries, ok := r.table(h, l.graphs, 32)
		w.counted = w.counted && ok
		for _, e := range entries[:min(len(entries), 1<<14)] {
			p := word(e, 24)
			object := r.get(p, poolSize)
			sets := r.setsOf(object, p)
			if len(sets) != len(l.sets) {
				w.counted = false
				continue
			}
			addSets(object, p, sets, PoolID{word(e, 8), word(e, 16)})
		}
	}
	w.readBlocks(r, l, at, states)
	w.check(r, l, d, h)
	return w
}

// findGraphs finds the table of private pools, whose entries are an id of two words and a pointer.
func (r *reader) findGraphs(h []byte, l *Layout) int {
	for o := l.active + tableSize; o+tableSize <= len(h); o += 8 {
		if entries, ok := r.table(h, o, 32); ok && len(entries) > 0 {
			if p := word(entries[0], 24); r.pointer(p) && len(r.setsOf(r.get(p, poolSize), p)) == len(l.sets) {
				return o
			}
		}
	}
	return 0
}

func (w *walk) readBlocks(r *reader, l *Layout, at []uint64, states []State) {
	n := max(l.ptr, l.size, l.prev, l.next, l.pool, l.requested) + 16
	b := r.each(n, at)
	w.raw, w.index = make([]rawBlock, 0, len(at)), make(map[uint64]int, len(at))
	for i, a := range at {
		x := b[min(i*n, len(b)):min((i+1)*n, len(b))]
		k := rawBlock{at: a, ptr: word(x, l.ptr), size: word(x, l.size), prev: word(x, l.prev), next: word(x, l.next), pool: word(x, l.pool), stream: word(x, 8), state: states[i]}
		if k.requested = k.size; l.requested >= 0 {
			k.requested = word(x, l.requested)
		}
		if allocated := l.ptr + 8; k.state == Active && allocated < len(x) && x[allocated] == 0 {
			k.state = PendingFree
		}
		w.index[a] = i
		w.raw = append(w.raw, k)
	}
}

// check compares the blocks with each other and with the counters, and the counters before and after.
func (w *walk) check(r *reader, l *Layout, d uint64, before []byte) {
	s := w.sum()
	end := l.sets[0] - 8
	if l.stats == 0 {
		l.stats = findStats(before[:end], s, l.requested >= 0)
	}
	after := r.get(d, objectSize)
	free := word(before, 0)&0xffffffff == 0 && word(after, 0)&0xffffffff == 0
	w.resting = free && l.stats != 0 && bytes.Equal(before[8:end], after[8:end])
	was, is := countersAt(before[:end], l), countersAt(after[:end], l)
	w.device.Counters = is
	agree := s.equals(was)
	w.device.Exact = w.resting && agree && w.counted && w.device.Contradicted == 0
	moved := func(a, b Stat) uint64 { return b.Allocated - a.Allocated + b.Freed - a.Freed }
	if !w.device.Exact {
		w.device.OffBlocks = apart(s.allocations, was.Allocations.Current) + moved(was.Allocations, is.Allocations)
		w.device.OffBytes = apart(s.allocated, was.Allocated.Current) + moved(was.Allocated, is.Allocated)
	}
}

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// sum adds the blocks up and counts those that their neighbors contradict.
func (w *walk) sum() (s sums) {
	bad := len(w.raw) - len(w.index) // in two containers
	for _, b := range w.raw {
		s.add(b)
		_, pool := w.pools[b.pool]
		ok := b.size != 0 && b.size%512 == 0 && pool
		if b.next != 0 {
			i, is := w.index[b.next]
			ok = ok && is && w.raw[i].prev == b.at && w.raw[i].ptr == b.ptr+b.size && w.raw[i].pool == b.pool
		}
		if b.prev != 0 {
			i, is := w.index[b.prev]
			ok = ok && is && w.raw[i].next == b.at
		}
		if !ok {
			bad++
		}
	}
	w.device.Contradicted = bad
	return s
}

// export adds the blocks and segments of a device to a snapshot.
func (w *walk) export(s *Snapshot, device int) {
	at := make([]int, len(w.raw))
	for i := range at {
		at[i] = -1
	}
	for i, b := range w.raw {
		if b.state == Unmapped || at[i] >= 0 || !w.begins(b) {
			continue
		}
		key := w.pools[b.pool]
		g := Segment{Address: b.ptr, Stream: b.stream, Pool: key.id, Small: key.small, Device: device, Expandable: b.prev != 0}
		for k, is := i, true; is && at[k] < 0; k, is = w.nextOf(k) {
			if w.raw[k].state == Unmapped {
				g.Expandable = true
				break
			}
			at[k] = len(s.Segments)
			g.Size += w.raw[k].size
			g.Blocks++
		}
		s.Segments = append(s.Segments, g)
	}
	for i, b := range w.raw {
		key := w.pools[b.pool]
		s.Blocks = append(s.Blocks, Block{Address: b.ptr, Size: b.size, Requested: b.requested, Stream: b.stream, Pool: key.id, Device: device, State: b.state, Small: key.small, Segment: at[i]})
	}
	s.Devices = append(s.Devices, w.device)
}

// begins reports whether a block is the first of a segment: nothing mapped is in front of it.
func (w *walk) begins(b rawBlock) bool {
	i, is := w.index[b.prev]
	return b.prev == 0 || is && w.raw[i].state == Unmapped
}

func (w *walk) nextOf(i int) (int, bool) {
	n, is := w.index[w.raw[i].next]
	return n, is && w.raw[i].next != 0
}
