// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// each tells a list of a process in as many pieces as it takes: tell carries one element.
func each[T any](o *opener, kind carriedKind, p *process, list []T, tell func(*T)) {
	for i := range list {
		if i == 0 || o.full() {
			o.beginOf(kind, p)
		}
		tell(&list[i])
	}
}

// handleOrMapping is a name of physical memory: a handle if End is 0.
type handleOrMapping struct {
	mapping
	handle
	learns bool
}

func (o *opener) physical(p *process) {
	v := p.physical
	var list []handleOrMapping
	for _, number := range slices.Sorted(maps.Keys(v.handles)) {
		h := v.handles[number]
		list = append(list, handleOrMapping{mapping: mapping{Start: number}, handle: h, learns: v.memories[h.memory].learns})
	}
	for x := range v.mappings.From(0) {
		list = append(list, handleOrMapping{mapping: *x, handle: handle{memory: x.Value.memory}, learns: v.memories[x.Value.memory].learns})
	}
	for i := 0; i == 0 || i < len(list); i++ {
		if i == 0 || o.full() {
			o.beginOf(carriedPhysical, p)
			num(&o.carrier, &v.last)
		}
		if i < len(list) {
			o.handleOrMapping(&list[i])
		}
	}
}

func (c *carrier) handleOrMapping(x *handleOrMapping) {
	nums(c, &x.Start, &x.End, &x.memory, &x.references, &x.Value.time)
	c.flags(&x.learns)
}

func takePhysical(c *carrier, p *process) {
	v := p.withPhysical()
	amount(c, &v.last, maxSum)
	for !c.bad && len(c.rest) > 0 {
		p.spend(512) // as much memory as a live allocation
		var x handleOrMapping
		if c.handleOrMapping(&x); c.bad {
			return
		}
		m, known := v.memories[x.memory]
		if _, lives := p.live[liveKey{x.memory, memories}]; x.memory > v.last || !lives && x.memory != 0 {
			c.bad = true
			return
		}
		m.learns = x.learns
		switch _, taken := v.handles[x.Start]; {
		case x.End == 0:
			if c.check(!taken && x.memory != 0 && x.references != 0); c.bad {
				return
			}
			v.handles[x.Start] = x.handle
			m.handles++
		case x.Start >= x.End || v.mappings.Overlaps(x.Start, x.End):
			c.bad = true
			return
		default:
			x.Value.memory = x.memory
			v.mappings.Insert(x.mapping)
			m.mappings++
		}
		if known || x.memory != 0 {
			v.memories[x.memory] = m
		}
	}
	p.countMappings()
}

// failureOf is a Failure with its key.
type failureOf struct {
	key failureKey
	f   *Failure
}

func (o *opener) failures(p *process) {
	var list []failureOf
	for key, f := range p.failures {
		list = append(list, failureOf{key, f})
	}
	slices.SortFunc(list, func(a, b failureOf) int { // the same books make the same opening
		x, y := &a.key, &b.key
		return cmp.Or(cmp.Compare(x.stack, y.stack), cmp.Compare(x.device, y.device), cmp.Compare(x.kind, y.kind),
			cmp.Compare(x.api, y.api), cmp.Compare(x.result, y.result))
	})
	each(o, carriedFailures, p, list, o.failure)
}

func (c *carrier) failure(x *failureOf) {
	key := &x.key
	c.stack(&key.stack)
	c.device(&key.device)
	c.kind(&key.kind)
	c.text(&key.api)
	num(c, &key.result)
	nums(c, &x.f.Count, &x.f.Bytes, &x.f.LastBytes, &x.f.LastTime, &x.f.Crowded)
}

func takeFailures(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 {
		x := failureOf{f: &Failure{}}
		p.spend(1024)
		if c.failure(&x); !c.bad {
			if p.failures == nil {
				p.failures = make(map[failureKey]*Failure)
			}
			p.failures[x.key] = x.f
		}
	}
}

// carriedExport is an exported allocation with the digest of its handle.
type carriedExport struct {
	digest uint64
	exported
}

// exports tells the exports of a process, and whose memory its sites imported.
func (o *opener) exports(p *process, all []*site) {
	var list []carriedExport
	for _, digest := range p.exported {
		if x, ok := p.session.exports[digest]; ok && x.owner.process == p.member {
			list = append(list, carriedExport{digest, x})
		}
	}
	each(o, carriedExports, p, list, o.export)
	var sites []*site
	for _, s := range all {
		if len(p.owners[s.siteKey]) > 0 {
			sites = append(sites, s)
		}
	}
	each(o, carriedOwners, p, sites, func(s **site) { carryOwners(&o.carrier, p, *s) })
}

func (c *carrier) export(x *carriedExport) {
	num(c, &x.digest)
	most(c, &x.size, maxSize)
	c.stack(&x.owner.stack)
	c.text(&x.owner.api)
}

func takeExports(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 {
		x := carriedExport{exported: exported{owner: owner{process: p.member}}}
		c.export(&x)
		_, taken := p.session.exports[x.digest]
		s := &p.quotas[tableExports]
		if c.check(!taken && s.Used() < s.Size() && x.digest != 0 && x.size != 0); c.bad {
			return
		}
		p.hold(tableExports)
		p.exported = append(p.exported, x.digest)
		p.session.exports[x.digest] = x.exported
	}
}

// carryOwners carries whose memory a site imported. It leaves out processes that are not told.
func carryOwners(c *carrier, p *process, s *site) {
	if c.siteRef(p, &s); c.bad {
		return
	}
	var list []owner
	if !c.reads() {
		for _, x := range p.owners[s.siteKey] {
			if _, told := c.renumber.member[x.process]; told {
				list = append(list, x)
			}
		}
	}
	carryList(c, &list, maxOwners+1, func(x *owner) {
		c.memberRef(&x.process)
		c.stack(&x.stack)
		c.text(&x.api)
	})
	if !c.reads() || c.bad || len(list) == 0 {
		return
	}
	if p.owners[s.siteKey] == nil {
		p.hold(tableImporters)
	}
	if p.owners == nil {
		p.owners = make(map[siteKey][]owner)
	}
	p.owners[s.siteKey] = list
}

func takeOwners(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 {
		carryOwners(c, p, nil)
	}
}

// frees tells the latest free of each thread, which may turn out to have failed.
func (o *opener) frees(p *process) {
	each(o, carriedFrees, p, slices.Sorted(maps.Keys(p.lastFree)), func(tid *uint32) {
		last := p.lastFree[*tid]
		carryFree(&o.carrier, p, tid, &last)
	})
}

func carryFree(c *carrier, p *process, tid *uint32, last *lastFree) {
	num(c, tid)
	num(c, &last.endings)
	most(c, &last.space, lastSpace)
	most(c, &last.outcome, lessPhysical)
	carryEntry(c, p, &last.entry, last.outcome == freed)
	if last.outcome != lessPhysical {
		return
	}
	r := p.released[*tid]
	num(c, &r.handle)
	carryMemory(c, p, &r.held)
	carryList(c, &r.ended, maxKept, func(x *endedMapping) {
		nums(c, &x.Start, &x.End, &x.Value.memory, &x.Value.time)
		c.check(x.Start < x.End)
		carryMemory(c, p, &x.of)
	})
	if c.reads() && !c.bad {
		p.withPhysical()
		p.withUndo().released[*tid] = r
		p.giveAll(tableUnmapped, -len(r.ended))
		c.check(p.quotas[tableUnmapped].Used() <= 2*p.quotas[tableUnmapped].Size()) // one call can end many
	}
}

// carryEntry carries an entry that has ended.
func carryEntry(c *carrier, p *process, x *entry, sited bool) {
	if sited {
		c.siteOf(p, &x.site)
	}
	var kind Kind
	if sited && !c.bad {
		kind = p.sites[x.site].kind
	}
	y := *x
	c.entry(p, &y, &entry{}, kind)
	if !c.reads() {
		return
	}
	y.prev = 0
	if kind == Async {
		y.extra, _ = c.poolOf(p, y.extra) // 0: its pool has ended
	}
	c.check(kind != Tensor && (!sited || y.size <= maxSize))
	*x = y
}

// carryMemory carries physical memory that may have ended.
func carryMemory(c *carrier, p *process, m *memoryOf) {
	num(c, &m.number)
	c.flags(&m.learns)
	carryEntry(c, p, &m.entry, m.number != 0)
	c.check(m.number == 0 || m.entry.address == m.number && m.number <= p.lastMemory())
}

func takeFrees(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 {
		var tid uint32
		last := lastFree{}
		carryFree(c, p, &tid, &last)
		_, taken := p.lastFree[tid]
		if c.check(!taken && p.quotas[tableFrees].Used() < maxLastFrees); c.bad {
			return
		}
		p.hold(tableFrees)
		p.withUndo().lastFree[tid] = last
	}
}

// carryRecents carries the recent past of a site, after that of all which share it if it is the first.
func carryRecents(c *carrier, p *process, s *site) {
	if c.siteRef(p, &s); c.bad {
		return
	}
	x := s.cohorts()
	first := !c.reads() && c.renumber.isFirst(x, s)
	if c.flags(&first); first {
		c.recents(x)
	}
	if c.check(x.levels.recents != nil); c.bad {
		return
	}
	if c.reads() {
		x.adopt(s.own.parts)
	}
	for i := range s.own.parts.recent {
		w := &s.own.parts.recent[i]
		nums(c, &w.alloc, &w.live)
		nums(c, &w.allocObjects, &w.liveObjects)
	}
}

// isFirst reports whether a site is the first one of its cohorts.
func (o *opener) isFirst(x *cohorts, s *site) bool {
	group, shared := o.groups[x]
	return !shared || group == o.site[s]+1
}

// recents carries the recent past of one or more sites, without their counts.
func (c *carrier) recents(x *cohorts) {
	if c.reads() {
		if c.check(x.levels.recents == nil && x.shift > recentShift); c.bad {
			return
		}
		x.levels.recents = &recents{}
	}
	r := x.levels.recents
	most(c, &r.newest, math.MaxUint64>>recentShift)
	most(c, &r.first, r.newest)
	num(c, &r.until)
	c.float(&r.now)
	if c.bad {
		r.first, r.newest = 0, 0
	}
	if n := recentPlace(r.newest, r.first) + 1; c.reads() {
		c.l.spend(stepsPerByte * 32 * n)
		r.lows = make([]low, n)
	}
	for i := range r.lows {
		area := float64(r.lows[i].area)
		amount(c, &r.lows[i].floor, maxSum)
		amount(c, &r.lows[i].kept, maxSum)
		amount(c, &r.lows[i].young, maxSum)
		c.float(&area)
		r.lows[i].area = float32(area)
	}
	carryList(c, &r.records, maxRecent, func(x *Record) {
		amount(c, &x.Floor, maxSum)
		num(c, &x.Lowest)
		amount(c, &x.Kept, maxSum)
		amount(c, &x.Young, maxSum)
	})
}

func takeRecents(c *carrier, p *process) {
	for !c.bad && len(c.rest) > 0 && !p.full() {
		carryRecents(c, p, nil)
	}
}
