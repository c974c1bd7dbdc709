// SPDX-License-Identifier: Apache-2.0

package ledger

const maxTotalsOf = (maxDevices + 3) * (int(lastKind) + 1) // of one process

// takeProcess adds a process to the books.
func (l *Ledger) takeProcess(c *carrier) {
	n := uint32(len(l.procs))
	if n >= uint32(l.quotas[tableProcesses].Size()) {
		c.bad = true
		return
	}
	var pid uint32
	num(c, &pid)
	l.begin(pid, 0, none)
	l.carryProcess(c, n)
	p := &l.procs[n]
	c.check(p.older == none || p.older < n && l.procs[p.older].PID == p.PID && l.procs[p.older].End != 0)
	if c.bad {
		p.older = none
	}
	l.opening.figures = append(l.opening.figures, 0)
	if p.End != 0 {
		l.ended = append(l.ended, n)
	}
}

// carryProcess carries what does not refer to sites of the process with that number, except its pid.
func (l *Ledger) carryProcess(c *carrier, number uint32) {
	p := &l.procs[number]
	num(c, &p.User)
	if user := p.User; c.reads() {
		p.User = 0
		l.setUser(p, user)
	}
	nums(c, &p.Begin, &p.End)
	c.flags(&p.Replaced, &p.OwnRoot, &p.misnamed, &p.crowded)
	older := p.older
	if !c.reads() && older != none && c.renumber.process[older] >= c.renumber.process[number] {
		older = none
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
	l.carryBeyond(c, p)
	for i := range p.releases {
		r := &p.releases[i]
		nums(c, &r.Objects, &r.Bytes, &r.Time)
	}
	carryList(c, &p.readings, maxDevices, c.reading)
	l.carryContexts(c, p)
	l.carryPeak(c, p)
	l.carryTotals(c, p)
	l.carryPools(c, p, number)
}

// processRef carries the number of a process, or none.
func (c *carrier) processRef(x *uint32) {
	v := *x
	if !c.reads() {
		n, ok := c.renumber.process[v]
		if !ok {
			n = none
		}
		v = n
	}
	num(c, &v)
	if c.reads() {
		*x = v
	}
}

func (l *Ledger) carryBeyond(c *carrier, p *process) {
	warnings, failures := p.held[tableWarnings], p.held[tableFailures]
	most(c, &warnings, maxWarnings)
	most(c, &failures, maxFailures)
	if c.reads() {
		p.held[tableWarnings] += warnings // the session has them in its own
		p.user[tableWarnings] += warnings
		l.giveAll(tableFailures, p, -int(failures))
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

func (l *Ledger) carryContexts(c *carrier, p *process) {
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

func (l *Ledger) carryPeak(c *carrier, p *process) {
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
func (l *Ledger) carryTotals(c *carrier, p *process) {
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
			l.tensorsOn(p, device)
		}
		for i := range p.totals {
			t := &p.totals[i]
			c.check(p.total(t.Device, t.Kind) == uint32(i)) // none is there twice
		}
		l.spend(len(p.totals) * len(p.totals))
	}
}

// carryPools carries pools without what their allocations add up to.
func (l *Ledger) carryPools(c *carrier, p *process, number uint32) {
	var numbers []uint32
	if !c.reads() {
		numbers = c.renumber.poolsOf[number]
	}
	carryList(c, &numbers, maxPools, func(n *uint32) {
		if c.reads() {
			if *n = uint32(len(l.pools)); !l.room(tablePools, p) {
				c.bad = true
				return
			}
			l.hold(tablePools, p)
			l.pools = append(l.pools, pool{process: number, inUse: true})
		} else {
			c.renumber.pool[*n] = uint32(len(c.renumber.pool))
		}
		x := &l.pools[*n]
		nums(c, &x.handle, &x.threshold, &x.created)
		amount(c, &x.reserve, maxSum)
		c.device(&x.device)
		c.device(&x.latest)
		num(c, &x.kind)
		c.check(x.kind == 0 || x.kind == Pinned || x.kind == Managed)
		if c.flags(&x.destroyed); !c.reads() || x.destroyed {
			return
		}
		key := keyOfPool(x.handle, x.device)
		if _, named := p.pools[key]; named {
			c.bad = true
		}
		if p.pools == nil {
			p.pools = make(map[poolKey]uint32)
		}
		p.pools[key] = *n
	})
}
