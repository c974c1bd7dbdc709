// SPDX-License-Identifier: Apache-2.0

package allocscan

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Table is what the reports of one allocator of a process came to: every block, sampled or not.
type Table struct {
	Device int32  // CUDA ordinal
	Number uint32 // another one: the table began anew
	// Of the latest report: its time, in ns of CLOCK_MONOTONIC, and the allocator's totals in
	// bytes. Live is the part of Allocated that was allocated since the attach.
	Time, Allocated, Live, Reserved uint64
	Given                           uint64 // blocks that were allocated since the attach
	Reports                         uint64 // since the attach
	Unbooked                        uint64 // blocks that had no room in the table
	// No report came while the blocks were read, and none is missing: they are those after Reports.
	Whole  bool
	Blocks []ledger.Block // allocated since the attach, in any order
}

// settler makes the walks of a process in motion complete with what its allocators reported from
// before a walk to after it. The result is the state after the latest of these reports, not that of
// the walk.
type settler struct {
	older map[int32]map[uint64]bool // by device: blocks of each walk so far that no report gave out
}

// settle returns a walk as of the tables after it, or nil where the sums do not prove it:
//
//   - blocks from before the attach, which are in the walk and in no table, with those since the attach are what
//     the allocator reports as allocated;
//   - no segment came or went meanwhile, and each live block is in one.
//
// A device at rest must stay so, for it has the walk's state. What waits for other streams is as
// the walk found it.
func (k *settler) settle(s *allocator.Snapshot, before, after []Table) *allocator.Snapshot {
	settled := *s
	settled.Blocks = nil
	for i := range s.Devices {
		d := &s.Devices[i]
		from, to := tableOf(before, d.Index), tableOf(after, d.Index)
		switch {
		case d.Exact && reportsOf(from) == reportsOf(to):
			settled.Blocks = append(settled.Blocks, blocksOn(s, d.Index)...)
			continue
		case from == nil || to == nil || !d.LockFree || !d.Bounded || !to.Whole || from.Number != to.Number ||
			to.Given-from.Given < d.Given || to.Reserved != d.Counters.Reserved.Current:
			return nil
		}
		c := composer{Snapshot: s, device: d.Index, walked: map[uint64]*allocator.Block{}}
		older, proven := k.olderOf(s, from, to)
		if !proven || !c.compose(to.Blocks, older) {
			return nil
		}
		settled.Blocks = append(settled.Blocks, c.blocks...)
	}
	slices.SortFunc(settled.Blocks, func(a, b allocator.Block) int { return cmp.Compare(a.Address, b.Address) })
	return &settled
}

func tableOf(list []Table, device int) *Table {
	for i := range list {
		if int(list[i].Device) == device {
			return &list[i]
		}
	}
	return nil
}

func reportsOf(t *Table) uint64 {
	if t == nil {
		return 0
	}
	return t.Reports
}

func blocksOn(s *allocator.Snapshot, device int) (list []allocator.Block) {
	for i := range s.Blocks {
		if s.Blocks[i].Device == device {
			list = append(list, s.Blocks[i])
		}
	}
	return list
}

// olderOf returns the live blocks from before the attach, and whether their sum proves them. A
// block that came and went between the tables looks like one, but not in each walk: the next one
// leaves it out.
func (k *settler) olderOf(s *allocator.Snapshot, from, to *Table) (older []ledger.Block, proven bool) {
	want := to.Allocated - min(to.Allocated, to.Live)
	if want == 0 {
		return nil, true
	}
	since := map[uint64]bool{}
	for _, t := range [...]*Table{from, to} {
		for i := range t.Blocks {
			since[t.Blocks[i].Address] = true
		}
	}
	known, limited := k.older[to.Device]
	next := map[uint64]bool{}
	sum := uint64(0)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Device != int(to.Device) || b.State != allocator.Active || since[b.Address] || limited && !known[b.Address] {
			continue
		}
		next[b.Address] = true
		sum += b.Size
		older = append(older, ledger.Block{Address: b.Address, Size: b.Size, Device: to.Device})
	}
	if sum < want { // a walk lacked one
		delete(k.older, to.Device)
		return nil, false
	}
	if k.older == nil {
		k.older = map[int32]map[uint64]bool{}
	}
	k.older[to.Device] = next
	return older, sum == want
}

// composer divides the segments of a device anew.
type composer struct {
	*allocator.Snapshot
	device int
	walked map[uint64]*allocator.Block
	blocks []allocator.Block
}

// compose divides the segments into live blocks, those that wait, and free ones between. It reports
// whether each live block is in a segment, and no segments overlap.
func (c *composer) compose(since, older []ledger.Block) bool {
	live := slices.Concat(since, older)
	slices.SortFunc(live, func(a, b ledger.Block) int { return cmp.Compare(a.Address, b.Address) })
	var pending []*allocator.Block
	for i := range c.Blocks {
		switch b := &c.Blocks[i]; {
		case b.Device != c.device:
		case b.State == allocator.PendingFree:
			pending = append(pending, b)
		case b.State == allocator.Active:
			c.walked[b.Address] = b
		}
	}
	last := uint64(0) // end of the segment before
	for i := range c.Segments {
		g := &c.Segments[i]
		if g.Device != c.device {
			continue
		}
		at, end := g.Address, g.Address+g.Size
		if at < last || end < at {
			return false
		}
		last = end
		for at < end {
			for len(pending) > 0 && pending[0].Address < at {
				pending = pending[1:]
			}
			next := end
			if len(live) > 0 {
				next = min(next, live[0].Address)
			}
			if next < at {
				return false // it overlaps what is in front, or is in no segment
			}
			if len(pending) > 0 && pending[0].Address <= next && pending[0].Size <= next-pending[0].Address && pending[0].Size > 0 {
				c.free(i, at, pending[0].Address)
				c.add(i, pending[0].Address, pending[0].Size, allocator.PendingFree)
				at = pending[0].Address + pending[0].Size
				continue
			}
			c.free(i, at, next)
			if at = next; at < end {
				if b := &live[0]; b.Size == 0 || b.Size > end-at {
					return false
				}
				c.add(i, at, live[0].Size, allocator.Active)
				at, live = at+live[0].Size, live[1:]
			}
		}
	}
	return len(live) == 0
}

func (c *composer) free(segment int, from, to uint64) {
	if from < to {
		c.add(segment, from, to-from, allocator.Inactive)
	}
}

func (c *composer) add(segment int, address, size uint64, state allocator.State) {
	g := &c.Segments[segment]
	b := allocator.Block{Address: address, Size: size, Requested: size, Stream: g.Stream, Pool: g.Pool, Device: g.Device, State: state, Small: g.Small, Segment: segment}
	if w := c.walked[address]; w != nil && w.Size == size && state == allocator.Active {
		b.Requested = w.Requested
	}
	c.blocks = append(c.blocks, b)
}
