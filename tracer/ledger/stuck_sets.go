// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// keepHeldBlocks keeps which block each holder of the latest walk keeps. Storages are sorted by
// address, and to has the place of each holder among those that were kept.
func (p *process) keepHeldBlocks(in *Walk, to map[uint32]uint32) {
	p.dropHeldBlocks()
	var list []heldBlock
	for i := range in.Storages {
		s := &in.Storages[i]
		if holder, ok := to[s.Holder]; ok && s.Block != 0 && !s.Allocation && p.heldBlocks+len(list) < maxHeldBlocks {
			list = append(list, heldBlock{s.Address, s.Block, holder})
		}
	}
	slices.SortFunc(list, func(a, b heldBlock) int { return cmp.Compare(a.address, b.address) })
	p.walks.blocks = slices.Clip(list)
	p.heldBlocks += len(list)
}

func (p *torch) dropHeldBlocks() {
	if p.walks != nil {
		p.heldBlocks -= len(p.walks.blocks) + len(p.walks.older.blocks)
		p.walks.blocks, p.walks.older.blocks = nil, nil
	}
}

// holderOf returns the holder of a block of a process at its latest walk, -1 if it is unknown. The
// walk may be later than the block was found. next is where the search begins; blocks must come by
// address.
func (p *process) holderOf(b *stuckBlock, next *int) int {
	w := p.walks
	if w == nil || len(w.list) == 0 {
		return -1
	}
	if b.stack == olderStack {
		return w.olderHolder(b)
	}
	for *next < len(w.blocks) && w.blocks[*next].address < b.address {
		*next++
	}
	latest := &w.list[len(w.list)-1]
	if *next == len(w.blocks) || b.time > latest.Time {
		return -1
	}
	x := &w.blocks[*next]
	if x.address != b.address || x.size != b.size || int(x.holder) >= len(latest.Held) {
		return -1
	}
	if e, ok := p.live[liveKey{b.address, Blocks}]; b.time != 0 && (!ok || max(p.entries.at(e).time, 1) != b.time) {
		return -1 // another block may have taken the address before the walk
	}
	return int(x.holder)
}

// olderHolder is holderOf for a block from before the attach.
func (w *walks) olderHolder(b *stuckBlock) int {
	x := w.older.find(b.address)
	if x == nil || x.gone || x.size != b.size || int(x.holder) >= len(w.list[len(w.list)-1].Held) {
		return -1
	}
	return int(x.holder)
}

// divider finds segments with blocks of the same stacks and holders.
type divider struct {
	x       *Stuck
	numbers map[uint64]uint32 // of pairs of a stack and a holder
	pairs   []StuckBy         // by number, without figures
	found   []StuckBy         // by number: in the segment with the number in
	in      []int
	list    []uint32 // numbers that are found in the current segment
	sets    map[string]*StuckSet
	order   []*StuckSet
}

// divide sets Sets.
func (x *Stuck) divide(p *process) {
	d := divider{x: x, numbers: map[uint64]uint32{}, sets: map[string]*StuckSet{}}
	next := 0
	for i := range x.units {
		d.find(i, func(b *stuckBlock) int { return p.holderOf(b, &next) })
		d.add(i)
	}
	p.spend(16 * len(x.blocks))
	x.Sets = nil
	for _, set := range d.order {
		slices.SortStableFunc(set.By, func(a, b StuckBy) int { return cmp.Compare(b.Bytes, a.Bytes) })
		x.Sets = append(x.Sets, *set)
	}
	slices.SortStableFunc(x.Sets, func(a, b StuckSet) int { return cmp.Compare(b.Free, a.Free) })
}

// number returns the number of a stack and a holder.
func (d *divider) number(stack uint32, holder int) uint32 {
	pair := uint64(stack)<<32 | uint64(uint32(holder+1))
	n, ok := d.numbers[pair]
	if !ok {
		n = uint32(len(d.pairs))
		d.numbers[pair] = n
		of := d.x.stacks[stack]
		d.pairs = append(d.pairs, StuckBy{Sampled: stack >= firstStack, Older: stack == olderStack, Stack: of.stack, API: of.api, Holder: holder})
		d.found, d.in = append(d.found, StuckBy{}), append(d.in, -1)
	}
	return n
}

// find sums the blocks in a segment by stack and holder.
func (d *divider) find(unit int, holderOf func(*stuckBlock) int) {
	u := &d.x.units[unit]
	d.list = d.list[:0]
	for i := u.first; i < u.last; i++ {
		b := &d.x.blocks[i]
		n := d.number(b.stack, holderOf(b))
		if d.in[n] != unit {
			d.in[n] = unit
			d.found[n] = d.pairs[n]
			d.list = append(d.list, n)
		}
		d.found[n].Bytes += b.bytes
		if i == 0 || d.x.blocks[i-1].address != b.address { // its first part
			d.found[n].Blocks++
		}
	}
}

// add adds the segment that was searched last to its set.
func (d *divider) add(unit int) {
	u, more := &d.x.units[unit], uint64(0)
	if len(d.list) > maxStuckBy {
		slices.SortFunc(d.list, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(d.found[b].Bytes, d.found[a].Bytes), cmp.Compare(a, b))
		})
		for _, n := range d.list[maxStuckBy:] {
			more += d.found[n].Bytes
		}
		d.list = d.list[:maxStuckBy]
	}
	slices.Sort(d.list)
	mark := make([]byte, 0, 4*len(d.list)+1)
	for _, n := range d.list {
		mark = binary.LittleEndian.AppendUint32(mark, n)
	}
	if more > 0 {
		mark = append(mark, 1)
	}
	set := d.sets[string(mark)]
	if set == nil {
		set = &StuckSet{By: make([]StuckBy, len(d.list))}
		for i, n := range d.list {
			set.By[i] = d.pairs[n]
		}
		d.sets[string(mark)] = set
		d.order = append(d.order, set)
	}
	set.Segments++
	set.Bytes += u.size
	set.Free += u.free
	set.More += more
	for i, n := range d.list {
		set.By[i].Blocks += d.found[n].Blocks
		set.By[i].Bytes += d.found[n].Bytes
	}
}

const (
	// recentReading is how old a reading may be to show what keeps a cache.
	recentReading = 10e9

	// maxPages bounds the pages of expandable segments that are looked at one by one: those of 2
	// TiB.
	maxPages = 1 << 20
)

// addStuckRead adds what was stuck of the allocators of a recent reading that is certain. It
// returns their devices.
func (p *process) addStuckRead(s *Snapshot, index int) map[int32]bool {
	a := p.allocator
	if a == nil || s.End > a.time+recentReading {
		return nil
	}
	added := map[int32]bool{}
	var sampled []stuckBlock
	var stacks stuckStacks
	for i := range a.reading.Devices {
		d, c := &a.reading.Devices[i], &a.divided[i]
		if !d.Exact && !d.Settled || c.Cached == 0 {
			continue
		}
		if sampled == nil {
			sampled, stacks = p.sampledBlocks()
		}
		x := &Stuck{Process: index, Device: d.Index, Read: a.time, Cached: c.Cached, stacks: stacks}
		x.findRead(a, sampled)
		x.divide(p)
		s.Stuck = append(s.Stuck, *x)
		added[d.Index] = true
	}
	return added
}

// findRead finds the segments of a reading on the device, and the blocks in them. Each page of an
// expandable segment goes back by itself, and so is a segment. Free segments of private pools do
// not go back.
func (x *Stuck) findRead(a *allocator, sampled []stuckBlock) {
	pieces, pages := blockPieces{blocks: a.liveOn(x.Device, sampled)}, maxPages
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		arena := &a.reading.Arenas[s.Arena]
		if arena.Device != x.Device {
			continue
		}
		for from, end := s.Address, s.Address+s.Size; from < end; {
			to := min(end, s.NextPage(from, arena.Small))
			if pages--; pages < 0 {
				to = end
			}
			u := stuckUnit{size: to - from, free: to - from, first: uint32(len(x.blocks))}
			for b := pieces.next(&extent{start: from, end: to}); b != nil; b = pieces.next(&extent{start: from, end: to}) {
				u.free -= b.bytes
				x.blocks = append(x.blocks, *b)
			}
			if u.free < u.size || !arena.Pool.Private() {
				x.add(&u)
			}
			from = to
		}
	}
}

// liveOn returns the live blocks of a reading on a device, with the stacks of those of the sample.
func (a *allocator) liveOn(device int32, sampled []stuckBlock) (list []stuckBlock) {
	for i := range a.reading.Blocks {
		b := &a.reading.Blocks[i]
		if a.reading.Arenas[b.Arena].Device != device || b.State != caching.Active && b.State != caching.PendingFree {
			continue
		}
		for len(sampled) > 0 && sampled[0].address < b.Address {
			sampled = sampled[1:]
		}
		live := stuckBlock{address: b.Address, size: b.Size}
		switch {
		case b.Older:
			live.stack, live.time = olderStack, 1
		case len(sampled) > 0 && sampled[0].address == b.Address && sampled[0].time <= a.time:
			live.stack, live.time = sampled[0].stack, sampled[0].time
		}
		list = append(list, live)
	}
	return list
}
