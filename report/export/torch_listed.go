// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"slices"
	"sort"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// listedBlock is a live block outside the sample: the time of its allocation is unknown.
type listedBlock struct {
	start, size uint64
	device      int32
	// Index of the trace entry after which it is shown as allocated; -1: before all of them.
	after int
}

// placeListed puts each listed block at the earliest possible place in the trace: after all entries
// in its range. Otherwise the viewer would draw the block in a segment that does not exist yet.
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
	next := make([]int, len(t.listed)+1) // by block: the next one without a place, or itself
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

// tiles iterates over the blocks by address, both those of the sample and those that are only
// listed.
type tiles struct {
	sampled *extents
	listed  []ledger.Block // sorted
	walked  *walked        // nil: without holders
	i       int
}

// in yields blocks and free space that tile a run of segments.
func (c *tiles) in(run []extent, listedAt uint64, yield func(block)) {
	at, end := run[0].Start, run[len(run)-1].End
	put := func(from, to, allocated uint64, b block) {
		if from > at {
			yield(block{size: from - at, free: true})
		}
		b.size = to - from
		if c.walked != nil {
			b.holder = c.walked.holderOf(from, b.size, allocated)
		}
		yield(b)
		at = to
	}
	// listedTo yields listed blocks up to limit that fit between two of the sample.
	listedTo := func(limit uint64) {
		for ; c.i < len(c.listed) && c.listed[c.i].Address < limit; c.i++ {
			b := &c.listed[c.i]
			if b.Address < at || b.Size == 0 || b.Size > limit-b.Address || young(run, b.Address, listedAt) {
				continue // known, or freed since
			}
			put(b.Address, b.Address+b.Size, 0, block{mark: markNotSampled})
		}
	}
	for b := range c.sampled.Overlap(at, end) {
		if b.Start < at {
			continue // it begins in another segment, which cannot be
		}
		listedTo(b.Start)
		put(b.Start, min(b.End, end), b.Value.time, block{stack: b.Value.stack, api: b.Value.api})
	}
	listedTo(end)
	if at < end {
		yield(block{size: end - at, free: true})
	}
}

// young reports whether the segment at an address is younger than the list of blocks.
func young(run []extent, address, listedAt uint64) bool {
	i, _ := slices.BinarySearchFunc(run, address, func(x extent, a uint64) int {
		if x.End <= a {
			return -1
		}
		return 1
	})
	return i < len(run) && run[i].Value.class != older && run[i].Value.time > listedAt
}
