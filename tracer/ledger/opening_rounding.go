// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

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
