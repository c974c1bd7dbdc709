// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// maxAmount is the most bytes of a sum: what a file has beyond is absurd.
const maxAmount = 1 << 60

// Carry writes or reads a history.
func (h *History) Carry(c *codec.Codec) {
	codec.Most(c, &h.shift, 64)
	var before change
	codec.List(c, &h.changes, MaxChanges, func(x *change) {
		time, live := x.time-before.time, x.live-before.live
		codec.Nums(c, &time, &live)
		*x = change{before.time + time, before.live + live}
		before = *x
		if c.Reads() {
			x.live = min(x.live, maxAmount)
		}
	})
}

// Carry writes or reads a track, without its recent past. The first of a group has what all share.
func (t *Track) Carry(c *codec.Codec, first bool) {
	t.History.Carry(c)
	if first {
		t.group().carry(c)
	}
	t.carryWindows(c)
}

// carry carries the cohorts of one or more sites, without their windows.
func (x *cohorts) carry(c *codec.Codec) {
	base := x.base + 1 // 0: none
	codec.Num(c, &base)
	x.base = base - 1
	codec.Most(c, &x.shift, 58)
	codec.Most(c, &x.last, CohortLen-1)
	codec.Num(c, &x.highs)
	for _, n := range [...]*uint64{&x.live, &x.peak, &x.floor} {
		codec.Amount(c, n, maxAmount)
	}
	codec.Num(c, &x.levels.until)
	c.Float(&x.levels.now)
	if c.Bad {
		x.last = 0
	}
	for i := range x.last {
		area := float64(x.levels.area[i])
		codec.Num(c, &x.levels.floor[i])
		c.Float(&area)
		x.levels.area[i] = float32(area)
	}
	c.Check(x.base == noBase || x.base < 1<<62>>x.shift)
}

func (t *Track) carryWindows(c *codec.Codec) {
	for i := range t.own.parts.list[:t.group().last+1] {
		w := &t.own.parts.list[i]
		codec.Nums(c, &w.alloc, &w.live)
		codec.Nums(c, &w.allocObjects, &w.liveObjects)
	}
}

// CarryRecent writes or reads the recent past of a track. The first of a group has what all share.
func (t *Track) CarryRecent(c *codec.Codec, first bool) {
	x := t.group()
	if first {
		x.carryRecents(c)
	}
	if c.Check(x.levels.recents != nil); c.Bad {
		return
	}
	if c.Reads() {
		x.adopt(t.own.parts)
	}
	for i := range t.own.parts.recent {
		w := &t.own.parts.recent[i]
		codec.Nums(c, &w.alloc, &w.live)
		codec.Nums(c, &w.allocObjects, &w.liveObjects)
	}
}

// carryRecents carries the recent past of one or more sites, without their counts.
func (x *cohorts) carryRecents(c *codec.Codec) {
	if c.Reads() {
		if c.Check(x.levels.recents == nil && x.shift > RecentShift); c.Bad {
			return
		}
		x.levels.recents = &recents{}
	}
	r := x.levels.recents
	codec.Most(c, &r.newest, math.MaxUint64>>RecentShift)
	codec.Most(c, &r.first, r.newest)
	codec.Num(c, &r.until)
	c.Float(&r.now)
	if c.Bad {
		r.first, r.newest = 0, 0
	}
	if n := RecentPlace(r.newest, r.first) + 1; c.Reads() {
		c.Spend(n, 32)
		r.lows = make([]low, n)
	}
	for i := range r.lows {
		area := float64(r.lows[i].area)
		codec.Amount(c, &r.lows[i].floor, maxAmount)
		codec.Amount(c, &r.lows[i].kept, maxAmount)
		codec.Amount(c, &r.lows[i].young, maxAmount)
		c.Float(&area)
		r.lows[i].area = float32(area)
	}
	codec.List(c, &r.records, MaxRecent, func(x *Record) {
		codec.Amount(c, &x.Floor, maxAmount)
		codec.Num(c, &x.Lowest)
		codec.Amount(c, &x.Kept, maxAmount)
		codec.Amount(c, &x.Young, maxAmount)
	})
}
