// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// sites tells sites of a process, and their live allocations.
func (o *opener) sites(p *process, list []*site) {
	var recent []*site
	each(o, carriedSites, p, list, func(s **site) {
		o.site[*s] = uint32(len(o.site))
		carrySite(&o.carrier, p, *s)
	})
	for _, s := range list {
		if s.first != 0 {
			o.entries(p, s)
		}
		if s.track.HasRecent() {
			recent = append(recent, s)
		}
	}
	each(o, carriedRecents, p, recent, func(s **site) { carryRecents(&o.carrier, p, *s) })
}

// entries tells the live allocations of a site, oldest first. Those of several sites share a piece.
func (o *opener) entries(p *process, s *site) {
	for b := s.first; b != 0; {
		if o.kind != carriedEntries || o.full() {
			o.begin(carriedEntries, nil)
		}
		c := &o.carrier
		c.siteRef(p, &s)
		var before entry
		for ; b != 0 && !o.full(); b = p.entries.at(b).next {
			x := *p.entries.at(b)
			more := true
			c.Flags(&more)
			c.entry(p, &x, &before, s.kind)
			before = x
		}
		more := false
		c.Flags(&more)
	}
}

// entry carries a live allocation after another one. A reader gets the carried number of its pool.
func (c *carrier) entry(p *process, x, before *entry, kind Kind) {
	address, time := x.address-before.address, x.time-before.time
	codec.Nums(c.Codec, &address, &time, &x.size)
	if kind == Async && !c.Reads() && x.extra != 0 {
		if of := p.pool(x.extra); of != nil {
			x.extra = c.renumber.pool[of]
		} else {
			x.extra = 0
		}
	}
	codec.Num(c.Codec, &x.extra)
	if c.Reads() {
		x.address, x.time = before.address+address, before.time+time
	}
}

// anySite carries a site of any process.
func (c *carrier) anySite(x *carriedSite) {
	var n uint32
	if !c.Reads() {
		n = c.renumber.site[x.site]
	}
	if codec.Num(c.Codec, &n); !c.Reads() {
		return
	}
	list := c.l.opening.sites
	if c.Check(int(n) < len(list)); !c.Bad {
		*x = list[n]
	}
}

// siteRef carries a site of a process.
func (c *carrier) siteRef(p *process, s **site) {
	x := carriedSite{p, *s}
	c.anySite(&x)
	if c.Check(x.process == p && x.site != nil); !c.Bad {
		*s = x.site
	}
}

// siteOf is siteRef for the number of a site; false if there is none.
func (c *carrier) siteOf(p *process, n *uint32) bool {
	s := p.at(*n)
	if c.siteRef(p, &s); c.Bad {
		return false
	}
	*n = s.number
	return true
}

func takeSites(c *carrier, l *Ledger) {
	var n uint32
	codec.Num(c.Codec, &n)
	c.Check(n < uint32(len(l.procs)))
	for !c.Bad && len(c.Rest) > 0 && !l.full() {
		carrySite(c, l.procs[n], nil)
	}
}

// carrySite carries a site without its entries.
func carrySite(c *carrier, p *process, s *site) {
	if c.Reads() {
		s = &site{}
	}
	c.siteKey(&s.siteKey)
	c.Flags(&s.bare, &s.free)
	group := c.groupOf(s)
	if codec.Num(c.Codec, &group); c.Reads() {
		if c.Bad {
			return
		}
		if takeSite(c, p, s, group); c.Bad {
			return
		}
	}
	for _, x := range [...]*uint64{&s.allocObjects, &s.allocBytes, &s.inside, &s.peak.objects, &s.peak.bytes} {
		codec.Num(c.Codec, x)
		c.bound(p, x)
	}
	codec.Nums(c.Codec, &s.oldest, &s.evicted, &s.crowded)
	codec.Num(c.Codec, &s.peak.number)
	codec.Num(c.Codec, &s.ended)
	c.counts(&s.early)
	presumed := s.presumed != nil
	c.Flags(&s.segment, &presumed)
	s.track.Carry(c.Codec, group == 0)
	if presumed {
		s.presume().Carry(c.Codec)
	}
	if c.Reads() && !c.Bad {
		addSums(c, p, s)
	}
}

// bound makes sums of the figures of a process fit 64 bits.
func (c *carrier) bound(p *process, x *uint64) {
	if c.Reads() {
		sum := c.l.opening.figures[p]
		*x = min(*x, maxSum, math.MaxUint64/2-sum)
		c.l.opening.figures[p] = sum + *x
	}
}

func (c *carrier) siteKey(key *siteKey) {
	c.Stack(&key.stack)
	codec.Num(c.Codec, &key.context)
	c.device(&key.device)
	codec.Most(c.Codec, &key.kind, lastKind)
	codec.Most(c.Codec, &key.space, lastSpace)
	codec.Most(c.Codec, &key.class, SizeClasses-1)
	c.Text(&key.api)
	c.Check((key.kind == Tensor) == (key.space == Blocks) && (key.kind == 0 || !key.kind.IsObject()))
}

// takeSite adds a site to the books.
func takeSite(c *carrier, p *process, s *site, group uint32) {
	if _, ok := p.siteOf[s.siteKey]; ok {
		c.Bad = true
		return
	}
	list := c.l.opening.sites
	var first *site
	if group != 0 {
		if c.Check(int(group) <= len(list) && s.kind == Tensor && list[group-1].process == p && list[group-1].site.isButForClass(s)); c.Bad {
			return
		}
		first = list[group-1].site
	}
	p.spend(len(p.totals) + len(p.tensors))
	p.addSite(s)
	if s.kind == Tensor {
		p.sumOf(s)
	}
	if first != nil {
		s.track.Share(&first.track)
	} else {
		s.track.Start()
	}
	if key := s.classKey(); s.kind == Tensor {
		if _, known := p.classes[key]; !known {
			p.classes[key] = s.number
		}
	}
	c.l.opening.sites = append(list, carriedSite{p, s})
}

// addSums adds what a site allocated and freed to the sums of its process.
func addSums(c *carrier, p *process, s *site) {
	switch s.kind {
	case aliased:
	case Tensor:
		freed := count{s.allocObjects, s.allocBytes}
		p.tensors[s.total].freed.take(&freed)
	default:
		for _, t := range [...]uint32{s.total, s.sum} {
			t := &p.totals[t]
			c.Check(s.allocBytes <= maxSum-t.AllocBytes)
			t.AllocObjects += s.allocObjects
			t.AllocBytes += s.allocBytes
		}
	}
}

// groupOf returns 0 if a site is the first one of its cohorts, otherwise the new number of that
// plus 1.
func (c *carrier) groupOf(s *site) (group uint32) {
	if c.Reads() || !s.track.IsShared() {
		return 0
	}
	o := c.renumber
	first, known := o.groups[s.track.Group()]
	if !known {
		o.groups[s.track.Group()] = o.site[s] + 1
	}
	return first
}

// takeEntries adds live allocations to the books.
func takeEntries(c *carrier, l *Ledger) {
	for !c.Bad && len(c.Rest) > 0 {
		var x carriedSite
		if c.anySite(&x); c.Bad {
			return
		}
		before := entry{}
		for more := true; !l.full(); {
			if c.Flags(&more); !more || c.Bad {
				break
			}
			b := entry{site: x.site.number}
			c.entry(x.process, &b, &before, x.site.kind)
			before = b
			takeEntry(c, x.process, x.site, &b)
		}
	}
}

// takeEntry adds a live allocation to the books.
func takeEntry(c *carrier, p *process, s *site, x *entry) {
	key := liveKey{x.address, s.space}
	_, taken := p.live[key]
	live := &p.quotas[tableLive]
	if c.Check(!taken && !p.purged && live.Used() < live.Size() && x.size <= maxSize); c.Bad {
		return
	}
	switch s.kind {
	case aliased:
	case Tensor:
		addBlock(c, p, s, x)
	default:
		addAllocation(c, p, s, x)
	}
	if c.Bad {
		return
	}
	n := p.addEntry(key, *x)
	p.link(n, s.last)
}

// addBlock adds a block of the sample to the sums.
func addBlock(c *carrier, p *process, s *site, x *entry) {
	t := &p.tensors[s.total]
	if c.Check(x.extra <= maxHalvings && x.size != 0); c.Bad {
		return
	}
	w := sampled(x.size, x.extra)
	if c.Check(w.bytes <= maxTensors-t.live.bytes); c.Bad {
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
func addAllocation(c *carrier, p *process, s *site, x *entry) {
	if s.kind == Async && x.extra != 0 {
		n, ok := c.poolOf(p, x.extra)
		if c.Check(ok); c.Bad {
			return
		}
		x.extra = n
		p.pools[n].add(x.address, x.size)
	}
	s.liveObjects++
	s.liveBytes += x.size
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		c.Check(x.size <= maxSum-t.LiveBytes)
		t.LiveObjects++
		t.LiveBytes += x.size
	}
}
