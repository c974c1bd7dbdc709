// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// rest tells the pieces that refer to these sites of a process.
func (o *opener) rest(k, n uint32, sites []uint32) {
	l, c := o.l, &o.carrier
	p := &l.procs[n]
	head := func() { num(c, &k) }
	for i := range p.tensors {
		o.begin(carriedTensors, head)
		num(c, &i)
		l.carryTensors(c, n, &p.tensors[i])
	}
	o.begin(carriedRest, head)
	l.carryRest(c, n)
	if v := p.physical; v != nil {
		o.physical(v, head)
	}
	o.failures(n, head)
	o.exports(n, sites, head)
	o.frees(n, head)
	o.blocks(p, head)
	o.walks(n, head)
}

// takeRest is the inverse of opener.rest.
func (l *Ledger) takeRest(c *carrier, kind carriedKind) {
	var n uint32
	num(c, &n)
	if c.check(n < uint32(len(l.procs)) && (kind == carriedPurged || kind == carriedRounding || !l.procs[n].purged)); c.bad {
		return
	}
	switch kind {
	case carriedRest:
		l.carryRest(c, n)
	case carriedTensors:
		i, p := 0, &l.procs[n]
		num(c, &i)
		if c.check(i >= 0 && i < len(p.tensors)); !c.bad {
			l.carryTensors(c, n, &p.tensors[i])
		}
	case carriedPhysical:
		l.takePhysical(c, n)
	case carriedPurged:
		l.takePurged(c, n)
	case carriedRecents:
		l.takeRecents(c, n)
	case carriedRounding:
		l.opening.rounded = true
		l.carryRounding(c, n)
	case carriedFailures:
		l.takeFailures(c, n)
	case carriedExports:
		l.takeExports(c, n)
	case carriedOwners:
		l.takeOwners(c, n)
	case carriedFrees:
		l.takeFrees(c, n)
	case carriedBlocks:
		l.takeBlocks(c, n)
	case carriedWalk:
		l.takeWalk(c, n)
	case carriedHeldSites:
		l.takeHeldSites(c, n)
	case carriedOpenWalk:
		l.takeOpenWalk(c, n)
	case carriedHeld:
		l.takeHeld(c, n)
	case carriedOlder:
		l.takeOlder(c, n)
	case carriedOlderBlocks:
		l.takeOlderBlocks(c, n)
	default:
		c.bad = true
	}
}

// carryRest carries what of a process fits one piece.
func (l *Ledger) carryRest(c *carrier, n uint32) {
	p := &l.procs[n]
	l.carryObjects(c, p)
	l.carryAsleep(c, p)
	l.carryStrays(c, n)
	carryList(c, &p.freeRuns, maxDevices, func(x *freeRun) {
		c.device(&x.device)
		num(c, &x.bytes)
	})
	num(c, &p.blockList.time)
}

// carryTensors carries what does not follow from the sites.
func (l *Ledger) carryTensors(c *carrier, n uint32, t *tensors) {
	most(c, &t.halvings, maxHalvings)
	c.flags(&t.contradicted, &t.unbooked)
	l.carryReading(c, t)
	c.told(&t.now)
	c.history(&t.olderFreed)
	l.carryFirst(c, n, &t.first)
	l.carryFirst(c, n, &t.atUsage)
	carryList(c, &t.changes, maxSegmentChanges, func(x *segmentChange) {
		num(c, &x.time)
		c.siteOf(l, n, &x.site)
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

func (l *Ledger) carryReading(c *carrier, t *tensors) {
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

func (l *Ledger) carryFirst(c *carrier, n uint32, f *firstReport) {
	nums(c, &f.time, &f.allocated, &f.reserved)
	c.flags(&f.seen, &f.final)
	carryList(c, &f.driver, maxSiteLive, func(x *siteLive) {
		c.siteOf(l, n, &x.site)
		amount(c, &x.bytes, maxSum)
	})
}

// carryObjects carries driver objects.
func (l *Ledger) carryObjects(c *carrier, p *process) {
	x := &p.objects
	carryList(c, &x.sites, maxObjectSites+4*int(lastKind), func(s *objectSite) {
		c.stack(&s.stack)
		c.text(&s.api)
		c.device(&s.device)
		c.kind(&s.kind)
		nums(c, &s.made, &s.before, &s.evicted, &s.crowded)
	})
	if c.reads() {
		l.giveAll(tableObjectSites, p, -len(x.sites))
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
		if c.check(int(o.site) < len(x.sites) && l.quotas[tableObjects].Used()+len(x.live) < l.quotas[tableObjects].Size()); c.bad || !c.reads() {
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
		l.giveAll(tableObjects, p, int(p.held[tableObjects])-len(x.live))
	}
	for _, m := range [...]*map[uint64]int32{&x.greens, &x.derived} {
		carryMap(c, m, maxDerived, func(handle *uint64, device *int32) {
			num(c, handle)
			c.device(device)
		})
	}
}

// carryAsleep carries ranges of addresses without memory.
func (l *Ledger) carryAsleep(c *carrier, p *process) {
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
func (l *Ledger) carryStrays(c *carrier, n uint32) {
	p := &l.procs[n]
	carryList(c, &p.strays, maxStrays, func(x *stray) {
		num(c, &x.key.address)
		most(c, &x.key.space, Externals)
		x.key.process = n
		nums(c, &x.time, &x.context)
		num(c, &x.tid)
	})
	if c.reads() {
		l.giveAll(tableStrays, p, -len(p.strays))
		c.check(l.quotas[tableStrays].Used() <= l.quotas[tableStrays].Size())
	}
}
