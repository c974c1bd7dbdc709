// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// rest tells the pieces that refer to these sites of a process.
func (o *opener) rest(p *process, sites []*site) {
	for i := range p.tensors {
		o.beginOf(carriedTensors, p)
		num(&o.carrier, &i)
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
	o.walks(p)
}

// takeRest is the inverse of opener.rest.
func takeRest(c *carrier, l *Ledger, kind carriedKind) {
	var n uint32
	num(c, &n)
	if c.check(n < uint32(len(l.procs)) && (kind == carriedPurged || kind == carriedRounding || !l.procs[n].purged)); c.bad {
		return
	}
	p := l.procs[n]
	switch kind {
	case carriedRest:
		carryRest(c, p)
	case carriedTensors:
		i := 0
		num(c, &i)
		if c.check(i >= 0 && i < len(p.tensors)); !c.bad {
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
	default:
		c.bad = true
	}
}

// carryRest carries what of a process fits one piece.
func carryRest(c *carrier, p *process) {
	carryObjects(c, p)
	carryAsleep(c, p)
	carryStrays(c, p)
	carryList(c, &p.freeRuns, maxDevices, func(x *freeRun) {
		c.device(&x.device)
		num(c, &x.bytes)
	})
	num(c, &p.blockList.time)
}

// carryTensors carries what does not follow from the sites.
func carryTensors(c *carrier, p *process, t *tensors) {
	most(c, &t.halvings, maxHalvings)
	c.flags(&t.contradicted, &t.unbooked)
	carryReading(c, p, t)
	c.told(&t.now)
	c.history(&t.olderFreed)
	carryFirst(c, p, &t.first)
	carryFirst(c, p, &t.atUsage)
	carryList(c, &t.changes, maxSegmentChanges, func(x *segmentChange) {
		num(c, &x.time)
		c.siteOf(p, &x.site)
		most(c, &x.bytes, maxSize)
		c.flags(&x.freed)
	})
	for _, x := range [...]*highest{&t.peak, &t.livePeak} {
		amount(c, &x.bytes, maxTensors)
		num(c, &x.time)
	}
	c.told(&t.atPeak.now)
	num(c, &t.atPeak.number)
	num(c, &t.outside)
}

func carryReading(c *carrier, p *process, t *tensors) {
	r := &t.reading
	c.flags(&r.taken)
	nums(c, &r.reported, &r.olderFreed)
	amount(c, &r.allocated, maxTensors)
	amount(c, &r.reserved, maxTensors)
	r.live, r.freed = count{}, count{}
	carryList(c, &r.classes, SizeClasses, func(x *tensorClass) {
		c.counts(&x.live, &x.freed)
		r.live.take(&x.live)
		r.freed.take(&x.freed)
	})
	since := t.since.classes != nil
	if c.flags(&since); !since {
		return
	}
	if c.reads() {
		t.since.classes = new([SizeClasses]struct{ live, freed signedCount })
	}
	for i := range t.since.classes {
		x := &t.since.classes[i]
		nums(c, &x.live.objects, &x.live.bytes, &x.freed.objects, &x.freed.bytes)
	}
}

func (c *carrier) told(x *toldTotals) {
	num(c, &x.time)
	for _, n := range [...]*uint64{&x.allocated, &x.reserved, &x.live} {
		amount(c, n, maxTensors)
	}
	c.flags(&x.known, &x.begun, &x.liveKnown)
}

func carryFirst(c *carrier, p *process, f *firstReport) {
	nums(c, &f.time, &f.allocated, &f.reserved)
	c.flags(&f.seen, &f.final)
	carryList(c, &f.driver, maxSiteLive, func(x *siteLive) {
		c.siteOf(p, &x.site)
		amount(c, &x.bytes, maxSum)
	})
}

// carryObjects carries driver objects.
func carryObjects(c *carrier, p *process) {
	x := &p.objects
	carryList(c, &x.sites, maxObjectSites+4*int(lastKind), func(s *objectSite) {
		c.stack(&s.stack)
		c.text(&s.api)
		c.device(&s.device)
		c.kind(&s.kind)
		nums(c, &s.made, &s.before, &s.evicted, &s.crowded)
	})
	if c.reads() {
		p.giveAll(tableObjectSites, -len(x.sites))
	}
	keys := slices.SortedFunc(maps.Keys(x.live), func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.kind, b.kind))
	})
	carryList(c, &keys, maxAllObjects, func(k *objectKey) {
		num(c, &k.handle)
		c.kind(&k.kind)
		o := x.live[*k]
		nums(c, &o.time, &o.context)
		most(c, &o.bytes, maxSize)
		num(c, &o.site)
		if c.check(int(o.site) < len(x.sites) && p.quotas[tableObjects].Used()+len(x.live) < p.quotas[tableObjects].Size()); c.bad || !c.reads() {
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
	if c.reads() {
		p.giveAll(tableObjects, int(p.held[tableObjects])-len(x.live))
	}
	for _, m := range [...]*map[uint64]int32{&x.greens, &x.derived} {
		carryMap(c, m, maxDerived, func(handle *uint64, device *int32) {
			num(c, handle)
			c.device(device)
		})
	}
}

// carryAsleep carries ranges of addresses without memory.
func carryAsleep(c *carrier, p *process) {
	s := &p.asleep
	c.flags(&s.seen)
	var end uint64
	carryList(c, &s.ranges, maxSleepers, func(x *sleeper) {
		nums(c, &x.start, &x.end, &x.time, &x.inside)
		num(c, &x.device)
		c.flags(&x.older, &x.placed)
		c.check(x.start >= end && x.start < x.end && x.inside <= x.end-x.start)
		end = x.end
	})
	carryList(c, &s.woken, maxSleepers, func(x *woken) {
		nums(c, &x.asleep, &x.time, &x.bytes)
		num(c, &x.device)
	})
	carryList(c, &s.lost, 2*maxSleepers, func(d *deviceLive) {
		num(c, &d.device)
		num(c, &d.bytes)
	})
}

// carryStrays carries which allocations wait for their device.
func carryStrays(c *carrier, p *process) {
	carryList(c, &p.strays, maxStrays, func(x *stray) {
		num(c, &x.key.address)
		most(c, &x.key.space, Externals)
		nums(c, &x.time, &x.context)
		num(c, &x.tid)
	})
	if c.reads() {
		p.giveAll(tableStrays, -len(p.strays))
		c.check(p.quotas[tableStrays].Used() <= p.quotas[tableStrays].Size())
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
		c.chunks(&x.chunks)
	}
	p.spend(len(p.pools))
	carryMap(c, &p.graphs, maxDevices+1, func(device *int32, x **chunks) {
		c.device(device)
		if c.reads() {
			if *x = p.graphs[*device]; *x == nil {
				*x = &chunks{}
			}
		}
		c.chunks(*x)
	})
	if !p.purged {
		return
	}
	for i := range p.totals {
		c.known(&p.totals[i].rounding.known)
		amount(c, &p.totals[i].rounding.most, maxSum)
	}
	c.lives(&p.atEnd)
	for i := range p.atEnd {
		c.known(&p.atEnd[i].known)
	}
}

// known carries rounding, which one total can pay for another.
func (c *carrier) known(x *int64) {
	if num(c, x); c.reads() {
		*x = min(max(*x, -maxSum), maxSum)
	}
}

// chunks carries which chunks had live allocations; which have some follows from these.
func (c *carrier) chunks(x *chunks) {
	amount(c, &x.kept, maxSum/poolChunk)
	type span struct{ from, to uint64 }
	var list []span
	for s := range x.seen.From(0) {
		list = append(list, span{s.Start, s.End})
	}
	carryList(c, &list, maxSeen, func(s *span) {
		nums(c, &s.from, &s.to)
		if c.check(s.from < s.to && s.to <= math.MaxUint64/poolChunk+1); c.reads() && !c.bad {
			x.see(s.from, s.to)
		}
	})
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
