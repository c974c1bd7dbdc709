// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// sites tells sites of a process, and their live allocations.
func (o *opener) sites(k uint32, numbers []uint32) {
	l := o.l
	head := func() { num(&o.carrier, &k) }
	for i, number := range numbers {
		if i == 0 || o.full() {
			o.begin(carriedSites, head)
		}
		o.site[number] = o.sitesSoFar
		o.sitesSoFar++
		l.carrySite(&o.carrier, number)
	}
	for _, number := range numbers {
		if l.sites[number].first != 0 {
			o.entries(number)
		}
	}
	var recent []uint32
	for _, number := range numbers {
		if l.sites[number].cohorts().levels.recents != nil {
			recent = append(recent, number)
		}
	}
	each(o, carriedRecents, recent, head, func(number *uint32) { l.carryRecents(&o.carrier, k, *number) })
}

// entries tells the live allocations of a site, oldest first. Those of several sites share a piece.
func (o *opener) entries(number uint32) {
	l := o.l
	s := &l.sites[number]
	for b := s.first; b != 0; {
		if o.kind != carriedEntries || o.full() {
			o.begin(carriedEntries, nil)
		}
		c := &o.carrier
		c.siteRef(l, &number)
		var before entry
		for ; b != 0 && !o.full(); b = l.entries.at(b).next {
			x := *l.entries.at(b)
			more := true
			c.flags(&more)
			c.entry(&x, &before, s.kind)
			before = x
		}
		more := false
		c.flags(&more)
	}
}

// entry carries a live allocation after another one.
func (c *carrier) entry(x, before *entry, kind Kind) {
	address, time := x.address-before.address, x.time-before.time
	nums(c, &address, &time, &x.size)
	if kind == Async && !c.reads() {
		x.extra = c.renumber.pool[x.extra]
	}
	num(c, &x.extra)
	if c.reads() {
		x.address, x.time = before.address+address, before.time+time
	}
}

// siteRef carries the number of a site.
func (c *carrier) siteRef(l *Ledger, x *uint32) {
	v := *x
	if !c.reads() {
		v = c.renumber.site[v]
	}
	num(c, &v)
	if !c.reads() {
		return
	}
	if v >= uint32(len(l.sites)) || l.sites[v].process == none {
		c.bad, v = true, 0
	}
	*x = v
}

// siteOf is siteRef for a site of a process; false if there is none.
func (c *carrier) siteOf(l *Ledger, process uint32, x *uint32) bool {
	c.siteRef(l, x)
	c.check(int(*x) < len(l.sites) && l.sites[*x].process == process)
	return !c.bad
}

func (l *Ledger) takeSites(c *carrier) {
	var process uint32
	num(c, &process)
	c.check(process < uint32(len(l.procs)))
	for !c.bad && len(c.rest) > 0 && !l.full() {
		l.carrySite(c, process)
	}
}

// carrySite carries a site without its entries: to a writer n is its number, to a reader that of its
// process.
func (l *Ledger) carrySite(c *carrier, n uint32) {
	var key siteKey
	var bare, free bool
	if !c.reads() {
		s := &l.sites[n]
		key, bare, free = s.siteKey, s.bare, s.free
	}
	c.siteKey(&key, n)
	c.flags(&bare, &free)
	group := l.groupOf(c, n)
	if num(c, &group); c.reads() {
		if c.bad {
			return
		}
		if n = l.newSite(c, key, group, bare, free); c.bad {
			return
		}
	}
	s := &l.sites[n]
	for _, x := range [...]*uint64{&s.allocObjects, &s.allocBytes, &s.inside, &s.peak.objects, &s.peak.bytes} {
		num(c, x)
		l.bound(c, s.process, x)
	}
	nums(c, &s.oldest, &s.evicted, &s.crowded)
	nums(c, &s.peak.number, &s.ended)
	c.counts(&s.early)
	c.flags(&s.segment)
	c.history(&s.history)
	if group == 0 {
		c.cohorts(s.cohorts())
	}
	c.windows(s)
	if c.reads() && !c.bad {
		l.addSums(c, s)
	}
}

// bound makes sums of the figures of a process fit 64 bits.
func (l *Ledger) bound(c *carrier, process uint32, x *uint64) {
	if c.reads() {
		sum := &l.opening.figures[process]
		*x = min(*x, maxSum, math.MaxUint64/2-*sum)
		*sum += *x
	}
}

func (c *carrier) siteKey(key *siteKey, process uint32) {
	if c.reads() {
		key.process = process
	}
	c.stack(&key.stack)
	num(c, &key.context)
	c.device(&key.device)
	most(c, &key.kind, lastKind)
	most(c, &key.space, lastSpace)
	most(c, &key.class, SizeClasses-1)
	c.text(&key.api)
	c.check((key.kind == Tensor) == (key.space == Blocks) && (key.kind == 0 || !key.kind.IsObject()))
}

// newSite adds a site to the books.
func (l *Ledger) newSite(c *carrier, key siteKey, group uint32, bare, free bool) uint32 {
	p := &l.procs[key.process]
	if _, ok := l.siteOf[key]; ok {
		c.bad = true
		return 0
	}
	s := site{siteKey: key, bare: bare, free: free}
	if !free {
		t := tableSites
		if bare {
			t = tableBare
		}
		l.hold(t, p)
		l.hold(tableEver, p)
	}
	l.limiter.sites++
	l.spend(len(p.totals) + len(p.tensors))
	switch key.kind {
	case aliased:
	case Tensor:
		s.total = l.tensorsOn(p, key.device)
	default:
		s.total, s.sum = p.total(key.device, key.kind), p.total(allDevices, key.kind)
	}
	n := uint32(len(l.sites))
	l.addWindows(&s)
	if group != 0 {
		if c.check(group <= n && key.kind == Tensor && l.sites[group-1].isButForClass(&s)); c.bad {
			return 0
		}
		l.share(&s, group-1)
	} else {
		l.addLevels(&s)
	}
	if hash := key.hashButForClass(); key.kind == Tensor {
		if _, known := l.classes[hash]; !known {
			l.classes[hash] = n
		}
	}
	l.sites = append(l.sites, s)
	l.siteOf[key] = n
	p.sites = append(p.sites, n)
	return n
}

// addSums adds what a site allocated and freed to the sums of its process.
func (l *Ledger) addSums(c *carrier, s *site) {
	p := &l.procs[s.process]
	switch s.kind {
	case aliased:
	case Tensor:
		freed := count{s.allocObjects, s.allocBytes}
		p.tensors[s.total].freed.take(&freed)
	default:
		for _, t := range [...]uint32{s.total, s.sum} {
			t := &p.totals[t]
			c.check(s.allocBytes <= maxSum-t.AllocBytes)
			t.AllocObjects += s.allocObjects
			t.AllocBytes += s.allocBytes
		}
	}
}

func (c *carrier) history(h *history) {
	most(c, &h.shift, 64)
	var before change
	carryList(c, &h.changes, maxChanges, func(x *change) {
		time, live := x.time-before.time, x.live-before.live
		nums(c, &time, &live)
		*x = change{before.time + time, before.live + live}
		before = *x
		if c.reads() {
			x.live = min(x.live, maxSum)
		}
	})
}

// groupOf returns 0 if a site is the first one of its cohorts, otherwise the new number of that plus
// 1.
func (l *Ledger) groupOf(c *carrier, n uint32) (group uint32) {
	if c.reads() {
		return 0
	}
	o, x := c.renumber, l.sites[n].shared
	if x == nil {
		return 0
	}
	first, known := o.groups[x]
	if !known {
		o.groups[x] = o.site[n] + 1
	}
	return first
}

// cohorts carries the cohorts of one or more sites, without their windows.
func (c *carrier) cohorts(x *cohorts) {
	base := x.base + 1 // 0: none
	num(c, &base)
	x.base = base - 1
	most(c, &x.shift, 58)
	most(c, &x.last, CohortLen-1)
	num(c, &x.highs)
	for _, n := range [...]*uint64{&x.live, &x.peak, &x.floor} {
		amount(c, n, maxSum)
	}
	num(c, &x.levels.until)
	c.float(&x.levels.now)
	if c.bad {
		x.last = 0
	}
	for i := range x.last {
		area := float64(x.levels.area[i])
		num(c, &x.levels.floor[i])
		c.float(&area)
		x.levels.area[i] = float32(area)
	}
	c.check(x.base == noBase || x.base < 1<<62>>x.shift)
}

func (c *carrier) windows(s *site) {
	for i := range s.own.parts.list[:s.cohorts().last+1] {
		w := &s.own.parts.list[i]
		nums(c, &w.alloc, &w.live)
		nums(c, &w.allocObjects, &w.liveObjects)
	}
}

// takeEntries adds live allocations to the books.
func (l *Ledger) takeEntries(c *carrier) {
	for !c.bad && len(c.rest) > 0 {
		var n uint32
		c.siteRef(l, &n)
		if c.bad {
			return
		}
		s, before := &l.sites[n], entry{}
		for more := true; !l.full(); {
			if c.flags(&more); !more || c.bad {
				break
			}
			x := entry{site: n}
			c.entry(&x, &before, s.kind)
			before = x
			l.takeEntry(c, s, &x)
		}
	}
}

// takeEntry adds a live allocation to the books.
func (l *Ledger) takeEntry(c *carrier, s *site, x *entry) {
	p := &l.procs[s.process]
	key := liveKey{x.address, s.process, s.space}
	_, taken := l.live[key]
	shares := &l.quotas[tableLive]
	if c.check(!taken && !p.purged && shares.Used() < shares.Size() && x.size <= maxSize); c.bad {
		return
	}
	switch s.kind {
	case aliased:
	case Tensor:
		l.addBlock(c, s, x)
	default:
		l.addAllocation(c, s, x)
	}
	if c.bad {
		return
	}
	n := l.addEntry(key, p, *x)
	l.link(n, s.last)
}

// addBlock adds a block of the sample to the sums.
func (l *Ledger) addBlock(c *carrier, s *site, x *entry) {
	t := &l.procs[s.process].tensors[s.total]
	if c.check(x.extra <= maxHalvings && x.size != 0); c.bad {
		return
	}
	w := sampled(x.size, x.extra)
	if c.check(w.bytes <= maxTensors-t.live.bytes); c.bad {
		return
	}
	t.sampled++
	t.live.objects += w.objects
	t.live.bytes += w.bytes
	s.liveObjects += w.objects
	s.liveBytes += w.bytes
	s.liveSquares += w.objects * w.objects
}

// addAllocation adds an allocation to the sums.
func (l *Ledger) addAllocation(c *carrier, s *site, x *entry) {
	p := &l.procs[s.process]
	if s.kind == Async && x.extra != 0 {
		if c.check(x.extra < uint32(len(l.pools)) && l.pools[x.extra].process == s.process); c.bad {
			return
		}
		l.pools[x.extra].add(x.address, x.size)
	}
	s.liveObjects++
	s.liveBytes += x.size
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		c.check(x.size <= maxSum-t.LiveBytes)
		t.LiveObjects++
		t.LiveBytes += x.size
	}
}
