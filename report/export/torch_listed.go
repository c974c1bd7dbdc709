// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"slices"
	"sort"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// listedBlock is a live block that was not in the sample: when it was allocated is not known.
type listedBlock struct {
	start, size uint64
	device      int32
	after       int // index in the trace: right after it the block can have been allocated; -1: before all of them
}

// placeListed gives each listed block that is shown a place in the trace, the earliest there can be: after all that was in its
// range before. Without it the viewer would have the block in a segment that is not there yet.
func (t *torch) placeListed() {
	c := tiles{sampled: &t.s.blocks, listed: t.s.listed}
	for run := range t.runs() {
		first := &run[0].Value
		if !t.hosts(first.class, first.stack, first.api) {
			continue
		}
		at := run[0].Start
		c.in(run, t.s.listedAt, func(b block) {
			if b.mark != "" {
				t.listed = append(t.listed, listedBlock{at, b.size, t.device(first.id, first.device), -1})
			}
			at += b.size
		})
	}
	next := make([]int, len(t.listed)+1) // of each block the next one without a place, or itself
	for i := range next {
		next[i] = i
	}
	free := func(i int) int {
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}
	for k := len(t.s.trace.entries) - 1; k >= 0 && len(t.listed) > 0; k-- {
		e := t.s.trace.at(k)
		if e.action == outOfMemory {
			continue
		}
		i := sort.Search(len(t.listed), func(i int) bool { return t.listed[i].start+t.listed[i].size > e.address })
		for i = free(i); i < len(t.listed) && t.listed[i].start < e.address+e.size; i = free(i) {
			t.listed[i].after = k
			next[i] = i + 1
		}
	}
	slices.SortStableFunc(t.listed, func(a, b listedBlock) int { return cmp.Compare(a.after, b.after) })
}

// tiles goes through the blocks by address, those of the sample and those that are only listed.
type tiles struct {
	sampled *extents
	listed  []ledger.Block // sorted
	i       int
}

// in gives blocks and free space that tile a run of segments.
func (c *tiles) in(run []extent, listedAt uint64, yield func(block)) {
	at, end := run[0].Start, run[len(run)-1].End
	put := func(from, to uint64, b block) {
		if from > at {
			yield(block{size: from - at, free: true})
		}
		b.size = to - from
		yield(b)
		at = to
	}
	// listedTo shows blocks that are only listed, as far as there is room between two of the sample.
	listedTo := func(limit uint64) {
		for ; c.i < len(c.listed) && c.listed[c.i].Address < limit; c.i++ {
			b := &c.listed[c.i]
			if b.Address < at || b.Size == 0 || b.Size > limit-b.Address || young(run, b.Address, listedAt) {
				continue // known, or gone since
			}
			put(b.Address, b.Address+b.Size, block{mark: markNotSampled})
		}
	}
	for b := range c.sampled.Overlap(at, end) {
		if b.Start < at {
			continue // it began in another segment: the books contradict themselves
		}
		listedTo(b.Start)
		put(b.Start, min(b.End, end), block{stack: b.Value.stack, api: b.Value.api})
	}
	listedTo(end)
	if at < end {
		yield(block{size: end - at, free: true})
	}
}

// young says whether what is at an address came after the list of blocks.
func young(run []extent, address, listedAt uint64) bool {
	i, _ := slices.BinarySearchFunc(run, address, func(x extent, a uint64) int {
		if x.End <= a {
			return -1
		}
		return 1
	})
	return i < len(run) && run[i].Value.class != older && run[i].Value.time > listedAt
}
