// SPDX-License-Identifier: Apache-2.0

package ledger

const maxTotalsOf = (maxDevices + 3) * (int(lastKind) + 1) // of one process

// takeProcess adds a process to the books.
func takeProcess(c *carrier, l *Ledger) {
	if len(l.procs) >= l.quotas[tableProcesses].Size() {
		c.bad = true
		return
	}
	var pid uint32
	num(c, &pid)
	p := l.begin(pid, 0)
	p.older = nil
	carryProcess(c, p)
	c.check(p.older == nil || p.older.number < p.number && p.older.PID == pid && p.older.End != 0)
	if c.bad {
		p.older = nil
	}
	p.endings = l.opening.endings
	if p.End != 0 {
		l.ended = append(l.ended, p)
	}
}

// carryProcess carries what does not refer to sites of the process, except its pid.
func carryProcess(c *carrier, p *process) {
	num(c, &p.User)
	if user := p.User; c.reads() {
		p.User = 0
		c.l.setUser(p, user)
	}
	nums(c, &p.Begin, &p.End)
	c.flags(&p.Replaced, &p.OwnRoot, &p.misnamed, &p.crowded)
	older := p.older
	if !c.reads() && older != nil && c.renumber.member[older.member] >= c.renumber.member[p.member] {
		older = nil
	}
	if c.processRef(&older); c.reads() {
		p.older = older
	}
	w := &p.Workload
	for _, x := range [...]*string{&p.Comm, &p.Exe, &w.Container, &w.Pod, &w.Namespace, &w.Job, &w.Rank, &w.LocalRank, &w.WorldSize,
		&w.PodContainer, &w.Actor,
	} {
		c.text(x)
	}
	nums(c, &p.Lost, &p.olderFreed, &p.stacksLost, &p.Folded)
	amount(c, &p.Deduced, maxSum)
	num(c, &p.bareFailures)
	known := p.devices != nil
	c.flags(&known)
	c.texts(&p.devices, maxDevices)
	if known && p.devices == nil {
		p.devices = []string{}
	}
	carryBeyond(c, p)
	for i := range p.releases {
		r := &p.releases[i]
		nums(c, &r.Objects, &r.Bytes, &r.Time)
	}
	carryList(c, &p.readings, maxDevices, c.reading)
	carryContexts(c, p)
	carryPeak(c, p)
	carryTotals(c, p)
	carryPools(c, p)
}

// processRef carries a process, or nil.
func (c *carrier) processRef(x **process) {
	var m *member
	if !c.reads() && *x != nil {
		m = (*x).member
	}
	n := c.memberRef(&m)
	if !c.reads() {
		return
	}
	if *x = nil; m != nil {
		*x = c.l.procs[n]
	}
}

// memberRef carries the number of a process, or none.
func (c *carrier) memberRef(x **member) uint32 {
	n := uint32(none)
	if !c.reads() {
		if at, told := c.renumber.member[*x]; told {
			n = at
		}
	}
	if num(c, &n); c.reads() {
		*x = nil
		if c.check(n == none || int(n) < len(c.l.procs)); n != none && !c.bad {
			*x = c.l.procs[n].member
		}
	}
	return n
}

func carryBeyond(c *carrier, p *process) {
	warnings, failures := p.held[tableWarnings], p.held[tableFailures]
	most(c, &warnings, maxWarnings)
	most(c, &failures, maxFailures)
	if c.reads() {
		p.held[tableWarnings] += warnings // the session has them in its own
		p.user[tableWarnings] += warnings
		p.giveAll(tableFailures, -int(failures))
	}
	list := p.beyond[:]
	carryList(c, &list, int(tables), func(n *uint64) { num(c, n) })
	if c.reads() {
		copy(p.beyond[:], list)
	}
}

func (c *carrier) reading(r *reading) {
	c.text(&r.uuid)
	c.text(&r.model)
	num(c, &r.order)
	nums(c, &r.first, &r.last, &r.peak, &r.began, &r.settledAt, &r.firstAt, &r.taken)
	c.flags(&r.present, &r.settled, &r.excess.known)
	c.lives(&r.firstLive)
	c.lives(&r.lastLive)
	at := &r.atPeak
	nums(c, &at.last, &at.taken)
	num(c, &at.number)
	c.lives(&at.lastLive)
	nums(c, &r.excess.low, &r.excess.high)
	num(c, &r.excess.live)
}

func (c *carrier) lives(list *[]deviceLive) {
	carryList(c, list, maxTotalsOf, func(d *deviceLive) {
		c.device(&d.device)
		c.kind(&d.kind)
		amount(c, &d.bytes, maxSum)
		amount(c, &d.most, maxSum)
	})
}

func carryContexts(c *carrier, p *process) {
	carryList(c, &p.primaries, maxDevices, func(x *primary) {
		nums(c, &x.context, &x.references)
		c.device(&x.device)
		c.flags(&x.whole, &x.orphaned)
	})
	carryMap(c, &p.selected, maxDevices+1, func(device *int32, pool *uint64) {
		c.device(device)
		num(c, pool)
	})
	carryMap(c, &p.own, maxDevices, func(pool *uint64, device *int32) {
		num(c, pool)
		c.device(device)
	})
}

func carryPeak(c *carrier, p *process) {
	x := &p.peak
	amount(c, &x.bytes, maxSum)
	num(c, &x.time)
	num(c, &x.number)
	c.flags(&x.torch, &x.more)
	c.device(&x.device)
	some := p.oom != nil
	if c.flags(&some); !some {
		return
	}
	if c.reads() {
		p.oom = &OOM{}
	}
	o := p.oom
	nums(c, &o.Time, &o.Bytes, &o.Count)
	c.stack(&o.Stack)
	c.text(&o.API)
	num(c, &o.Kind)
	num(c, &o.Device)
}

// carryTotals carries what does not follow from the sites, and the order.
func carryTotals(c *carrier, p *process) {
	carryList(c, &p.totals, maxTotalsOf, func(t *runningTotal) {
		c.device(&t.Device)
		c.kind(&t.Kind)
		amount(c, &t.PeakBytes, maxSum)
		num(c, &t.PeakTime)
		amount(c, &t.low, maxSum)
		amount(c, &t.high, maxSum)
	})
	devices := make([]int32, len(p.tensors))
	for i := range p.tensors {
		devices[i] = p.tensors[i].device
	}
	carryList(c, &devices, maxDevices+2, c.device)
	if c.reads() {
		for _, device := range devices {
			p.tensorsOn(device)
		}
		for i := range p.totals {
			t := &p.totals[i]
			c.check(p.total(t.Device, t.Kind) == uint32(i)) // none is there twice
		}
		p.spend(len(p.totals) * len(p.totals))
	}
}

// carryPools carries pools without what their allocations add up to.
func carryPools(c *carrier, p *process) {
	var list []*pool
	if !c.reads() {
		list = p.usedPools()
	}
	carryList(c, &list, maxPools, func(x **pool) {
		n := uint32(0)
		if c.reads() {
			if n = p.newPool(); n == 0 {
				c.bad = true
				return
			}
			c.l.opening.pools = append(c.l.opening.pools, carriedPool{p, n})
			*x = &p.pools[n]
		} else {
			c.renumber.pool[*x] = uint32(len(c.renumber.pool)) + 1
		}
		c.pool(*x)
		if !c.reads() || (*x).destroyed {
			return
		}
		key := keyOfPool((*x).handle, (*x).device)
		if _, named := p.poolOf[key]; named {
			c.bad = true
		}
		p.namePool(key, n)
	})
}

func (c *carrier) pool(x *pool) {
	nums(c, &x.handle, &x.threshold, &x.created)
	amount(c, &x.reserve, maxSum)
	c.device(&x.device)
	c.device(&x.latest)
	num(c, &x.kind)
	c.check(x.kind == 0 || x.kind == Pinned || x.kind == Managed)
	c.flags(&x.destroyed)
}

// poolOf returns the number of a carried pool in its process; 0 and false if it is not of the process.
func (c *carrier) poolOf(p *process, n uint32) (uint32, bool) {
	list := c.l.opening.pools
	if n == 0 || int(n) > len(list) || list[n-1].process != p {
		return 0, false
	}
	return list[n-1].number, true
}
