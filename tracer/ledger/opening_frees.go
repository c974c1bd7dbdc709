// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
)

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
