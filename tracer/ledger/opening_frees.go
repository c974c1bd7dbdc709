// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// frees tells the latest free of each thread, which may turn out to have failed.
func (o *opener) frees(n uint32, head func()) {
	l := o.l
	each(o, carriedFrees, o.freesOf[n], head, func(tid *uint32) {
		last := l.lastFree[*tid]
		l.carryFree(&o.carrier, n, tid, &last)
	})
}

// freesByProcess returns the threads of lastFree in order, by process.
func (l *Ledger) freesByProcess() map[uint32][]uint32 {
	by := map[uint32][]uint32{}
	for tid, last := range l.lastFree {
		by[last.process] = append(by[last.process], tid)
	}
	for _, list := range by {
		slices.Sort(list)
	}
	return by
}

func (l *Ledger) carryFree(c *carrier, n uint32, tid *uint32, last *lastFree) {
	num(c, tid)
	num(c, &last.endings)
	most(c, &last.space, lastSpace)
	most(c, &last.outcome, lessPhysical)
	l.carryEntry(c, n, &last.entry, last.outcome == freed)
	if last.outcome != lessPhysical {
		return
	}
	r := l.released[*tid]
	num(c, &r.handle)
	l.carryMemory(c, n, &r.held)
	carryList(c, &r.ended, maxKept, func(x *endedMapping) {
		nums(c, &x.Start, &x.End, &x.Value.memory, &x.Value.time)
		c.check(x.Start < x.End)
		l.carryMemory(c, n, &x.of)
	})
	if c.reads() && !c.bad {
		l.procs[n].withPhysical()
		l.released[*tid] = r
		l.giveAll(tableUnmapped, &l.procs[n], -len(r.ended))
		c.check(l.quotas[tableUnmapped].Used() <= 2*l.quotas[tableUnmapped].Size()) // one call can end many
	}
}

// carryEntry carries an entry that has ended.
func (l *Ledger) carryEntry(c *carrier, n uint32, x *entry, sited bool) {
	if sited {
		c.siteOf(l, n, &x.site)
	}
	var kind Kind
	if sited && !c.bad {
		kind = l.sites[x.site].kind
	}
	y := *x
	c.entry(&y, &entry{}, kind)
	if !c.reads() {
		return
	}
	if y.prev = 0; kind == Async && (y.extra >= uint32(len(l.pools)) || l.pools[y.extra].process != n) {
		y.extra = 0 // its pool has ended
	}
	c.check(kind != Tensor && (!sited || y.size <= maxSize))
	*x = y
}

// carryMemory carries physical memory that may have ended.
func (l *Ledger) carryMemory(c *carrier, n uint32, m *memoryOf) {
	num(c, &m.number)
	c.flags(&m.learns)
	l.carryEntry(c, n, &m.entry, m.number != 0)
	c.check(m.number == 0 || m.entry.address == m.number && m.number <= l.procs[n].lastMemory())
}

// lastMemory returns the latest number of physical memory.
func (p *process) lastMemory() uint64 {
	if p.physical == nil {
		return 0
	}
	return p.physical.last
}

func (l *Ledger) takeFrees(c *carrier, n uint32) {
	p := &l.procs[n]
	for !c.bad && len(c.rest) > 0 {
		var tid uint32
		last := lastFree{process: n}
		l.carryFree(c, n, &tid, &last)
		_, taken := l.lastFree[tid]
		if c.check(!taken && len(l.lastFree) < maxLastFrees); c.bad {
			return
		}
		l.hold(tableFrees, p)
		l.lastFree[tid] = last
	}
}
