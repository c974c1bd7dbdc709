// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
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
			codec.Num(o.Codec, &v.last)
		}
		if i < len(list) {
			o.handleOrMapping(&list[i])
		}
	}
}

func (c *carrier) handleOrMapping(x *handleOrMapping) {
	codec.Nums(c.Codec, &x.Start, &x.End, &x.memory, &x.references, &x.Value.time)
	c.Flags(&x.learns)
}

func takePhysical(c *carrier, p *process) {
	v := p.withPhysical()
	codec.Amount(c.Codec, &v.last, maxSum)
	for !c.Bad && len(c.Rest) > 0 {
		p.spend(512) // as much memory as a live allocation
		var x handleOrMapping
		if c.handleOrMapping(&x); c.Bad {
			return
		}
		m, known := v.memories[x.memory]
		if _, lives := p.live[liveKey{x.memory, memories}]; x.memory > v.last || !lives && x.memory != 0 {
			c.Bad = true
			return
		}
		m.learns = x.learns
		switch _, taken := v.handles[x.Start]; {
		case x.End == 0:
			if c.Check(!taken && x.memory != 0 && x.references != 0); c.Bad {
				return
			}
			v.handles[x.Start] = x.handle
			m.handles++
		case x.Start >= x.End || v.mappings.Overlaps(x.Start, x.End):
			c.Bad = true
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
	c.Stack(&key.stack)
	c.device(&key.device)
	c.kind(&key.kind)
	c.Text(&key.api)
	codec.Num(c.Codec, &key.result)
	codec.Nums(c.Codec, &x.f.Count, &x.f.Bytes, &x.f.LastBytes, &x.f.LastTime, &x.f.Crowded)
}

func takeFailures(c *carrier, p *process) {
	for !c.Bad && len(c.Rest) > 0 {
		x := failureOf{f: &Failure{}}
		p.spend(1024)
		if c.failure(&x); !c.Bad {
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
	codec.Num(c.Codec, &x.digest)
	codec.Most(c.Codec, &x.size, maxSize)
	c.Stack(&x.owner.stack)
	c.Text(&x.owner.api)
}

func takeExports(c *carrier, p *process) {
	for !c.Bad && len(c.Rest) > 0 {
		x := carriedExport{exported: exported{owner: owner{process: p.member}}}
		c.export(&x)
		_, taken := p.session.exports[x.digest]
		s := &p.quotas[tableExports]
		if c.Check(!taken && s.Used() < s.Size() && x.digest != 0 && x.size != 0); c.Bad {
			return
		}
		p.hold(tableExports)
		p.exported = append(p.exported, x.digest)
		p.session.exports[x.digest] = x.exported
	}
}

// carryOwners carries whose memory a site imported. It leaves out processes that are not told.
func carryOwners(c *carrier, p *process, s *site) {
	if c.siteRef(p, &s); c.Bad {
		return
	}
	var list []owner
	if !c.Reads() {
		for _, x := range p.owners[s.siteKey] {
			if _, told := c.renumber.member[x.process]; told {
				list = append(list, x)
			}
		}
	}
	codec.List(c.Codec, &list, maxOwners+1, func(x *owner) {
		c.memberRef(&x.process)
		c.Stack(&x.stack)
		c.Text(&x.api)
	})
	if !c.Reads() || c.Bad || len(list) == 0 {
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
	for !c.Bad && len(c.Rest) > 0 {
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
	codec.Num(c.Codec, tid)
	codec.Num(c.Codec, &last.endings)
	codec.Most(c.Codec, &last.space, lastSpace)
	codec.Most(c.Codec, &last.outcome, givenBack)
	carryEntry(c, p, &last.entry, last.outcome == freed)
	if last.outcome != lessPhysical {
		return
	}
	r := p.released[*tid]
	codec.Num(c.Codec, &r.handle)
	carryMemory(c, p, &r.held)
	codec.List(c.Codec, &r.ended, maxKept, func(x *endedMapping) {
		codec.Nums(c.Codec, &x.Start, &x.End, &x.Value.memory, &x.Value.time)
		c.Check(x.Start < x.End)
		carryMemory(c, p, &x.of)
	})
	if c.Reads() && !c.Bad {
		p.withPhysical()
		p.withUndo().released[*tid] = r
		p.giveAll(tableUnmapped, -len(r.ended))
		c.Check(p.quotas[tableUnmapped].Used() <= 2*p.quotas[tableUnmapped].Size()) // one call can end many
	}
}

// carryEntry carries an entry that has ended.
func carryEntry(c *carrier, p *process, x *entry, sited bool) {
	if sited {
		c.siteOf(p, &x.site)
	}
	var kind Kind
	if sited && !c.Bad {
		kind = p.sites[x.site].kind
	}
	y := *x
	c.entry(p, &y, &entry{}, kind)
	if !c.Reads() {
		return
	}
	y.prev = 0
	if kind == Async {
		y.extra, _ = c.poolOf(p, y.extra) // 0: its pool has ended
	}
	c.Check(kind != Tensor && (!sited || y.size <= maxSize))
	*x = y
}

// carryMemory carries physical memory that may have ended.
func carryMemory(c *carrier, p *process, m *memoryOf) {
	codec.Num(c.Codec, &m.number)
	c.Flags(&m.learns)
	carryEntry(c, p, &m.entry, m.number != 0)
	c.Check(m.number == 0 || m.entry.address == m.number && m.number <= p.lastMemory())
}

func takeFrees(c *carrier, p *process) {
	for !c.Bad && len(c.Rest) > 0 {
		var tid uint32
		last := lastFree{}
		carryFree(c, p, &tid, &last)
		_, taken := p.lastFree[tid]
		if c.Check(!taken && p.quotas[tableFrees].Used() < maxLastFrees); c.Bad {
			return
		}
		p.hold(tableFrees)
		p.withUndo().lastFree[tid] = last
	}
}

// carryRecents carries the recent past of a site, after that of all which share it if it is the
// first.
func carryRecents(c *carrier, p *process, s *site) {
	if c.siteRef(p, &s); c.Bad {
		return
	}
	first := !c.Reads() && c.renumber.isFirst(s)
	c.Flags(&first)
	s.track.CarryRecent(c.Codec, first)
}

// isFirst reports whether a site is the first one of its cohorts.
func (o *opener) isFirst(s *site) bool {
	group, shared := o.groups[s.track.Group()]
	return !shared || group == o.site[s]+1
}

func takeRecents(c *carrier, p *process) {
	for !c.Bad && len(c.Rest) > 0 && !p.full() {
		carryRecents(c, p, nil)
	}
}
