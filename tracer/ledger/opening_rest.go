// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/chunks"
	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// rest tells the pieces that refer to these sites of a process.
func (o *opener) rest(p *process, sites []*site) {
	for i := range p.tensors {
		o.beginOf(carriedTensors, p)
		codec.Num(o.Codec, &i)
		carryTensors(&o.carrier, p, &p.tensors[i])
	}
	o.beginOf(carriedRest, p)
	carryRest(&o.carrier, p)
	if p.physical != nil {
		o.physical(p)
	}
	o.failures(p)
	o.exports(p, sites)
	o.frees(p)
	o.blocks(p)
	o.allocator(p)
	o.walks(p)
	if p.walks != nil && len(p.walks.list) > 0 {
		o.beginOf(carriedWaste, p)
		carryWaste(&o.carrier, p)
	}
}

// takeRest takes a piece of one process that has neither sites nor entries.
func takeRest(c *carrier, l *Ledger, kind carriedKind) {
	var n uint32
	codec.Num(c.Codec, &n)
	if c.Check(n < uint32(len(l.procs)) && (kind == carriedPurged || kind == carriedRounding || !l.procs[n].purged)); c.Bad {
		return
	}
	p := l.procs[n]
	switch kind {
	case carriedRest:
		carryRest(c, p)
	case carriedTensors:
		i := 0
		codec.Num(c.Codec, &i)
		if c.Check(i >= 0 && i < len(p.tensors)); !c.Bad {
			carryTensors(c, p, &p.tensors[i])
		}
	case carriedPhysical:
		takePhysical(c, p)
	case carriedPurged:
		takePurged(c, p)
	case carriedRecents:
		takeRecents(c, p)
	case carriedRounding:
		l.opening.rounded = true
		carryRounding(c, p)
	case carriedFailures:
		takeFailures(c, p)
	case carriedExports:
		takeExports(c, p)
	case carriedOwners:
		takeOwners(c, p)
	case carriedFrees:
		takeFrees(c, p)
	case carriedBlocks:
		takeBlocks(c, p)
	case carriedWalk:
		takeWalk(c, p)
	case carriedHeldSites:
		takeHeldSites(c, p)
	case carriedOpenWalk:
		takeOpenWalk(c, p)
	case carriedHeld:
		takeHeld(c, p)
	case carriedOlder:
		takeOlder(c, p)
	case carriedOlderBlocks:
		takeOlderBlocks(c, p)
	case carriedAllocator:
		takeAllocator(c, p)
	case carriedWaste:
		carryWaste(c, p)
	default:
		c.Bad = true
	}
}

// carryRest carries what of a process fits one piece.
func carryRest(c *carrier, p *process) {
	carryObjects(c, p)
	carryAsleep(c, p)
	carryStrays(c, p)
	codec.List(c.Codec, &p.freeRuns, maxDevices, func(x *freeRun) {
		c.device(&x.device)
		codec.Num(c.Codec, &x.bytes)
	})
	codec.Num(c.Codec, &p.blockList.time)
}

// carryTensors carries what does not follow from the sites.
func carryTensors(c *carrier, p *process, t *tensors) {
	codec.Most(c.Codec, &t.halvings, maxHalvings)
	lost, returns, phases := t.lost != 0, len(t.returned) > 0, t.phases.Any()
	c.Flags(&t.contradicted, &t.unbooked, &t.untraced, &t.open, &lost, &returns, &phases)
	if t.untraced {
		codec.Amount(c.Codec, &t.traced, maxTensors)
	}
	if phases {
		t.phases.Carry(c.Codec)
	}
	if lost {
		codec.Num(c.Codec, &t.lost)
	}
	if returns {
		codec.List(c.Codec, &t.returned, maxSegmentChanges, func(x *returned) {
			codec.Nums(c.Codec, &x.address, &x.time)
			codec.Most(c.Codec, &x.bytes, maxSize)
		})
	}
	carryReading(c, p, t)
	c.told(&t.now)
	t.olderFreed.Carry(c.Codec)
	carryFirst(c, p, &t.first)
	carryFirst(c, p, &t.atUsage)
	codec.List(c.Codec, &t.changes, maxSegmentChanges, func(x *segmentChange) {
		codec.Num(c.Codec, &x.time)
		c.siteOf(p, &x.site)
		codec.Most(c.Codec, &x.bytes, maxSize)
		c.Flags(&x.freed)
	})
	for _, x := range [...]*highest{&t.peak, &t.livePeak} {
		codec.Amount(c.Codec, &x.bytes, maxTensors)
		codec.Num(c.Codec, &x.time)
	}
	c.told(&t.atPeak.now)
	codec.Num(c.Codec, &t.atPeak.number)
	codec.Num(c.Codec, &t.outside)
}

func carryReading(c *carrier, p *process, t *tensors) {
	r := &t.reading
	c.Flags(&r.taken)
	codec.Nums(c.Codec, &r.reported, &r.olderFreed)
	codec.Amount(c.Codec, &r.allocated, maxTensors)
	codec.Amount(c.Codec, &r.reserved, maxTensors)
	r.live, r.freed = count{}, count{}
	codec.List(c.Codec, &r.classes, SizeClasses, func(x *tensorClass) {
		c.counts(&x.live, &x.freed)
		r.live.take(&x.live)
		r.freed.take(&x.freed)
	})
	since := t.since.classes != nil
	if c.Flags(&since); !since {
		return
	}
	if c.Reads() {
		t.since.classes = new([SizeClasses]struct{ live, freed signedCount })
	}
	for i := range t.since.classes {
		x := &t.since.classes[i]
		codec.Nums(c.Codec, &x.live.objects, &x.live.bytes, &x.freed.objects, &x.freed.bytes)
	}
}

func (c *carrier) told(x *toldTotals) {
	codec.Num(c.Codec, &x.time)
	for _, n := range [...]*uint64{&x.allocated, &x.reserved, &x.live} {
		codec.Amount(c.Codec, n, maxTensors)
	}
	c.Flags(&x.known, &x.begun, &x.liveKnown)
}

func carryFirst(c *carrier, p *process, f *firstReport) {
	codec.Nums(c.Codec, &f.time, &f.allocated, &f.reserved)
	c.Flags(&f.seen, &f.final)
	codec.List(c.Codec, &f.driver, maxSiteLive, func(x *siteLive) {
		c.siteOf(p, &x.site)
		codec.Amount(c.Codec, &x.bytes, maxSum)
	})
}

// carryObjects carries driver objects.
func carryObjects(c *carrier, p *process) {
	x := &p.objects
	codec.List(c.Codec, &x.sites, maxObjectSites+4*int(lastKind), func(s *objectSite) {
		c.Stack(&s.stack)
		c.Text(&s.api)
		c.device(&s.device)
		c.kind(&s.kind)
		codec.Nums(c.Codec, &s.made, &s.before, &s.evicted, &s.crowded)
	})
	if c.Reads() {
		p.giveAll(tableObjectSites, -len(x.sites))
	}
	keys := slices.SortedFunc(maps.Keys(x.live), func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.kind, b.kind))
	})
	codec.List(c.Codec, &keys, maxAllObjects, func(k *objectKey) {
		codec.Num(c.Codec, &k.handle)
		c.kind(&k.kind)
		o := x.live[*k]
		codec.Nums(c.Codec, &o.time, &o.context)
		codec.Most(c.Codec, &o.bytes, maxSize)
		codec.Num(c.Codec, &o.site)
		if c.Check(int(o.site) < len(x.sites) && p.quotas[tableObjects].Used()+len(x.live) < p.quotas[tableObjects].Size()); c.Bad || !c.Reads() {
			return
		}
		if x.live == nil {
			x.live = make(map[objectKey]driverObject)
		}
		if s := &x.sites[o.site]; o.bytes <= maxSum-s.bytes {
			s.live++
			s.bytes += o.bytes
			x.live[*k] = o
		}
	})
	if c.Reads() {
		p.giveAll(tableObjects, int(p.held[tableObjects])-len(x.live))
	}
	for _, m := range [...]*map[uint64]int32{&x.greens, &x.derived} {
		codec.Map(c.Codec, m, maxDerived, func(handle *uint64, device *int32) {
			codec.Num(c.Codec, handle)
			c.device(device)
		})
	}
}

// carryAsleep carries ranges of addresses without memory.
func carryAsleep(c *carrier, p *process) {
	s := &p.asleep
	c.Flags(&s.seen)
	var end uint64
	codec.List(c.Codec, &s.ranges, maxSleepers, func(x *sleeper) {
		codec.Nums(c.Codec, &x.start, &x.end, &x.time, &x.inside)
		codec.Num(c.Codec, &x.device)
		c.Flags(&x.older, &x.placed)
		c.Check(x.start >= end && x.start < x.end && x.inside <= x.end-x.start)
		end = x.end
	})
	codec.List(c.Codec, &s.woken, maxSleepers, func(x *woken) {
		codec.Nums(c.Codec, &x.asleep, &x.time, &x.bytes)
		codec.Num(c.Codec, &x.device)
	})
	codec.List(c.Codec, &s.lost, 2*maxSleepers, func(d *deviceLive) {
		codec.Num(c.Codec, &d.device)
		codec.Num(c.Codec, &d.bytes)
	})
}

// carryStrays carries which allocations wait for their device.
func carryStrays(c *carrier, p *process) {
	codec.List(c.Codec, &p.strays, maxStrays, func(x *stray) {
		codec.Num(c.Codec, &x.key.address)
		codec.Most(c.Codec, &x.key.space, Externals)
		codec.Nums(c.Codec, &x.time, &x.context)
		codec.Num(c.Codec, &x.tid)
	})
	if c.Reads() {
		p.giveAll(tableStrays, -len(p.strays))
		c.Check(p.quotas[tableStrays].Used() <= p.quotas[tableStrays].Size())
	}
}

// carryRounding carries what the driver holds for allocations beyond their bytes, as far as it does
// not follow from those that live.
func carryRounding(c *carrier, p *process) {
	for i := range p.readings {
		r := &p.readings[i]
		for _, list := range [...][]deviceLive{r.firstLive, r.lastLive, r.atPeak.lastLive} {
			for k := range list {
				c.known(&list[k].known)
			}
		}
	}
	for _, x := range p.usedPools() {
		x.chunks.Carry(c.Codec)
	}
	p.spend(len(p.pools))
	codec.Map(c.Codec, &p.graphs, maxDevices+1, func(device *int32, x **chunks.Set) {
		c.device(device)
		if c.Reads() {
			if *x = p.graphs[*device]; *x == nil {
				*x = &chunks.Set{}
			}
		}
		(*x).Carry(c.Codec)
	})
	if !p.purged {
		return
	}
	for i := range p.totals {
		c.known(&p.totals[i].rounding.known)
		codec.Amount(c.Codec, &p.totals[i].rounding.most, maxSum)
	}
	c.lives(&p.atEnd)
	for i := range p.atEnd {
		c.known(&p.atEnd[i].known)
	}
}

// known carries rounding, which one total can pay for another.
func (c *carrier) known(x *int64) {
	if codec.Num(c.Codec, x); c.Reads() {
		*x = min(max(*x, -maxSum), maxSum)
	}
}

// guessRounding has a process of a capture without carryRounding take what is rounded now for what
// was at the latest reading.
func (p *gpuMap) guessRounding() {
	for i := range p.readings {
		for k := range p.readings[i].lastLive {
			d := &p.readings[i].lastLive[k]
			for t := range p.totals {
				if t := &p.totals[t]; t.Device == d.device && t.Kind == d.kind {
					d.known = t.rounding.known
				}
			}
		}
	}
	p.spend(len(p.readings) * len(p.totals))
}
