// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// each tells a list of a process in as many pieces as it takes: tell carries one element.
func each[T any](o *opener, kind carriedKind, list []T, head func(), tell func(*T)) {
	for i := range list {
		if i == 0 || o.full() {
			o.begin(kind, head)
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

func (o *opener) physical(v *physical, head func()) {
	var list []handleOrMapping
	for _, number := range slices.Sorted(maps.Keys(v.handles)) {
		h := v.handles[number]
		list = append(list, handleOrMapping{mapping: mapping{Start: number}, handle: h, learns: v.memories[h.memory].learns})
	}
	for x := range v.mappings.From(0) {
		list = append(list, handleOrMapping{mapping: *x, handle: handle{memory: x.Value.memory}, learns: v.memories[x.Value.memory].learns})
	}
	more := func() {
		head()
		num(&o.carrier, &v.last)
	}
	if len(list) == 0 {
		o.begin(carriedPhysical, more)
	}
	each(o, carriedPhysical, list, more, o.handleOrMapping)
}

func (c *carrier) handleOrMapping(x *handleOrMapping) {
	nums(c, &x.Start, &x.End, &x.memory, &x.references, &x.Value.time)
	c.flags(&x.learns)
}

func (l *Ledger) takePhysical(c *carrier, n uint32) {
	p := &l.procs[n]
	v := p.withPhysical()
	amount(c, &v.last, maxSum)
	for !c.bad && len(c.rest) > 0 {
		l.spend(512) // as much memory as a live allocation
		var x handleOrMapping
		if c.handleOrMapping(&x); c.bad {
			return
		}
		m, known := v.memories[x.memory]
		if _, lives := l.live[liveKey{x.memory, n, memories}]; x.memory > v.last || !lives && x.memory != 0 {
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
	l.countMappings(p)
}

// failureOf is a Failure with its key.
type failureOf struct {
	key failureKey
	f   *Failure
}

func (o *opener) failures(n uint32, head func()) {
	each(o, carriedFailures, o.failuresOf[n], head, o.failure)
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

func (l *Ledger) takeFailures(c *carrier, n uint32) {
	for !c.bad && len(c.rest) > 0 {
		x := failureOf{key: failureKey{siteKey: siteKey{process: n}}, f: &Failure{}}
		l.spend(1024)
		if c.failure(&x); !c.bad {
			l.failures[x.key] = x.f
		}
	}
}

// failuresByProcess sorts all failures, so that the same books make the same opening.
func (l *Ledger) failuresByProcess() map[uint32][]failureOf {
	by := map[uint32][]failureOf{}
	for key, f := range l.failures {
		by[key.process] = append(by[key.process], failureOf{key, f})
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b failureOf) int {
			x, y := &a.key, &b.key
			return cmp.Or(cmp.Compare(x.stack, y.stack), cmp.Compare(x.device, y.device), cmp.Compare(x.kind, y.kind),
				cmp.Compare(x.api, y.api), cmp.Compare(x.result, y.result))
		})
	}
	return by
}

// carriedExport is an exported allocation with the digest of its handle.
type carriedExport struct {
	digest uint64
	exported
}

func (o *opener) exports(n uint32, all []uint32, head func()) {
	l := o.l
	var list []carriedExport
	for _, digest := range l.procs[n].exported {
		if x, ok := l.exports[digest]; ok && x.owner.process == n {
			list = append(list, carriedExport{digest, x})
		}
	}
	each(o, carriedExports, list, head, o.export)
	var sites []uint32
	for _, number := range all {
		if len(l.owners[l.sites[number].siteKey]) > 0 {
			sites = append(sites, number)
		}
	}
	each(o, carriedOwners, sites, head, func(number *uint32) { l.carryOwners(&o.carrier, *number) })
}

func (c *carrier) export(x *carriedExport) {
	num(c, &x.digest)
	most(c, &x.size, maxSize)
	c.stack(&x.owner.stack)
	c.text(&x.owner.api)
}

func (l *Ledger) takeExports(c *carrier, n uint32) {
	p := &l.procs[n]
	for !c.bad && len(c.rest) > 0 {
		x := carriedExport{exported: exported{owner: owner{process: n}}}
		c.export(&x)
		_, taken := l.exports[x.digest]
		s := &l.quotas[tableExports]
		if c.check(!taken && s.Used() < s.Size() && x.digest != 0 && x.size != 0); c.bad {
			return
		}
		l.hold(tableExports, p)
		p.exported = append(p.exported, x.digest)
		l.exports[x.digest] = x.exported
	}
}

// carryOwners carries whose memory a site imported. It leaves out processes that are not told.
func (l *Ledger) carryOwners(c *carrier, number uint32) {
	c.siteRef(l, &number)
	if c.bad {
		return
	}
	key := l.sites[number].siteKey
	var list []owner
	if !c.reads() {
		for _, x := range l.owners[key] {
			if _, told := c.renumber.process[x.process]; told {
				list = append(list, x)
			}
		}
	}
	carryList(c, &list, maxOwners+1, func(x *owner) {
		c.processRef(&x.process)
		c.check(x.process == none || int(x.process) < len(l.procs))
		c.stack(&x.stack)
		c.text(&x.api)
	})
	if !c.reads() || c.bad || len(list) == 0 {
		return
	}
	if p := &l.procs[key.process]; l.owners[key] == nil {
		l.hold(tableImporters, p)
	}
	l.owners[key] = list
}

func (l *Ledger) takeOwners(c *carrier, n uint32) {
	for !c.bad && len(c.rest) > 0 {
		l.carryOwners(c, 0)
	}
}
