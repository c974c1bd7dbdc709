// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

const maxTotalsOf = (maxDevices + 3) * (int(lastKind) + 1) // of one process

// takeProcess adds a process to the books.
func takeProcess(c *carrier, l *Ledger) {
	if len(l.procs) >= l.quotas[tableProcesses].Size() {
		c.Bad = true
		return
	}
	var pid uint32
	codec.Num(c.Codec, &pid)
	p := l.begin(pid, 0)
	p.older = nil
	carryProcess(c, p)
	c.Check(p.older == nil || p.older.number < p.number && p.older.PID == pid && p.older.End != 0)
	if c.Bad {
		p.older = nil
	}
	p.endings = l.opening.endings
	if p.End != 0 {
		l.ended = append(l.ended, p)
	}
}

// carryProcess carries what does not refer to sites of the process, except its pid.
func carryProcess(c *carrier, p *process) {
	codec.Num(c.Codec, &p.User)
	if user := p.User; c.Reads() {
		p.User = 0
		c.l.setUser(p, user)
	}
	codec.Nums(c.Codec, &p.Begin, &p.End)
	c.Flags(&p.Replaced, &p.OwnRoot, &p.misnamed, &p.crowded)
	older := p.older
	if !c.Reads() && older != nil && c.renumber.member[older.member] >= c.renumber.member[p.member] {
		older = nil
	}
	if c.processRef(&older); c.Reads() {
		p.older = older
	}
	w := &p.Workload
	for _, x := range [...]*string{&p.Comm, &p.Exe, &w.Container, &w.Pod, &w.Namespace, &w.Job, &w.Rank, &w.LocalRank, &w.WorldSize,
		&w.PodContainer, &w.Actor,
	} {
		c.Text(x)
	}
	codec.Nums(c.Codec, &p.Lost, &p.olderFreed, &p.stacksLost, &p.Folded)
	codec.Amount(c.Codec, &p.Deduced, maxSum)
	codec.Num(c.Codec, &p.bareFailures)
	known := p.devices != nil
	c.Flags(&known)
	c.TextList(&p.devices, maxDevices)
	if known && p.devices == nil {
		p.devices = []string{}
	}
	carryBeyond(c, p)
	for i := range p.releases {
		r := &p.releases[i]
		codec.Nums(c.Codec, &r.Objects, &r.Bytes, &r.Time)
	}
	codec.List(c.Codec, &p.readings, maxDevices, c.reading)
	carryContexts(c, p)
	carryPeak(c, p)
	carryTotals(c, p)
	carryPools(c, p)
}

// processRef carries a process, or nil.
func (c *carrier) processRef(x **process) {
	var m *member
	if !c.Reads() && *x != nil {
		m = (*x).member
	}
	n := c.memberRef(&m)
	if !c.Reads() {
		return
	}
	if *x = nil; m != nil {
		*x = c.l.procs[n]
	}
}

// memberRef carries the number of a process, or none.
func (c *carrier) memberRef(x **member) uint32 {
	n := uint32(none)
	if !c.Reads() {
		if at, told := c.renumber.member[*x]; told {
			n = at
		}
	}
	if codec.Num(c.Codec, &n); c.Reads() {
		*x = nil
		if c.Check(n == none || int(n) < len(c.l.procs)); n != none && !c.Bad {
			*x = c.l.procs[n].member
		}
	}
	return n
}

func carryBeyond(c *carrier, p *process) {
	warnings, failures := p.held[tableWarnings], p.held[tableFailures]
	codec.Most(c.Codec, &warnings, maxWarnings)
	codec.Most(c.Codec, &failures, maxFailures)
	if c.Reads() {
		p.held[tableWarnings] += warnings // the session has them in its own
		p.user[tableWarnings] += warnings
		p.giveAll(tableFailures, -int(failures))
	}
	list := p.beyond[:]
	codec.List(c.Codec, &list, int(tables), func(n *uint64) { codec.Num(c.Codec, n) })
	if c.Reads() {
		copy(p.beyond[:], list)
	}
}

func (c *carrier) reading(r *reading) {
	c.Text(&r.uuid)
	c.Text(&r.model)
	codec.Num(c.Codec, &r.order)
	codec.Nums(c.Codec, &r.first, &r.last, &r.peak, &r.began, &r.settledAt, &r.firstAt, &r.taken)
	c.Flags(&r.present, &r.settled, &r.excess.known)
	c.lives(&r.firstLive)
	c.lives(&r.lastLive)
	at := &r.atPeak
	codec.Nums(c.Codec, &at.last, &at.taken)
	codec.Num(c.Codec, &at.number)
	c.lives(&at.lastLive)
	codec.Nums(c.Codec, &r.excess.low, &r.excess.high)
	codec.Num(c.Codec, &r.excess.live)
}

func (c *carrier) lives(list *[]deviceLive) {
	codec.List(c.Codec, list, maxTotalsOf, func(d *deviceLive) {
		c.device(&d.device)
		c.kind(&d.kind)
		codec.Amount(c.Codec, &d.bytes, maxSum)
		codec.Amount(c.Codec, &d.most, maxSum)
	})
}

func carryContexts(c *carrier, p *process) {
	codec.List(c.Codec, &p.primaries, maxDevices, func(x *primary) {
		codec.Nums(c.Codec, &x.context, &x.references)
		c.device(&x.device)
		c.Flags(&x.whole, &x.orphaned)
	})
	codec.Map(c.Codec, &p.selected, maxDevices+1, func(device *int32, pool *uint64) {
		c.device(device)
		codec.Num(c.Codec, pool)
	})
	codec.Map(c.Codec, &p.own, maxDevices, func(pool *uint64, device *int32) {
		codec.Num(c.Codec, pool)
		c.device(device)
	})
}

func carryPeak(c *carrier, p *process) {
	x := &p.peak
	codec.Amount(c.Codec, &x.bytes, maxSum)
	codec.Num(c.Codec, &x.time)
	codec.Num(c.Codec, &x.number)
	c.Flags(&x.torch, &x.more)
	c.device(&x.device)
	some := p.oom != nil
	if c.Flags(&some); !some {
		return
	}
	if c.Reads() {
		p.oom = &OOM{}
	}
	o := p.oom
	codec.Nums(c.Codec, &o.Time, &o.Bytes, &o.Count)
	c.Stack(&o.Stack)
	c.Text(&o.API)
	codec.Num(c.Codec, &o.Kind)
	codec.Num(c.Codec, &o.Device)
}

// carryTotals carries what does not follow from the sites, and the order.
func carryTotals(c *carrier, p *process) {
	codec.List(c.Codec, &p.totals, maxTotalsOf, func(t *runningTotal) {
		c.device(&t.Device)
		c.kind(&t.Kind)
		codec.Amount(c.Codec, &t.PeakBytes, maxSum)
		codec.Num(c.Codec, &t.PeakTime)
		codec.Amount(c.Codec, &t.low, maxSum)
		codec.Amount(c.Codec, &t.high, maxSum)
	})
	devices := make([]int32, len(p.tensors))
	for i := range p.tensors {
		devices[i] = p.tensors[i].device
	}
	codec.List(c.Codec, &devices, maxDevices+2, c.device)
	if c.Reads() {
		for _, device := range devices {
			p.tensorsOn(device)
		}
		for i := range p.totals {
			t := &p.totals[i]
			c.Check(p.total(t.Device, t.Kind) == uint32(i)) // none is there twice
		}
		p.spend(len(p.totals) * len(p.totals))
	}
}

// carryPools carries pools without what their allocations add up to.
func carryPools(c *carrier, p *process) {
	var list []*pool
	if !c.Reads() {
		list = p.usedPools()
	}
	codec.List(c.Codec, &list, maxPools, func(x **pool) {
		n := uint32(0)
		if c.Reads() {
			if n = p.newPool(); n == 0 {
				c.Bad = true
				return
			}
			c.l.opening.pools = append(c.l.opening.pools, carriedPool{p, n})
			*x = &p.pools[n]
		} else {
			c.renumber.pool[*x] = uint32(len(c.renumber.pool)) + 1
		}
		c.pool(*x)
		if !c.Reads() || (*x).destroyed {
			return
		}
		key := keyOfPool((*x).handle, (*x).device)
		if _, named := p.poolOf[key]; named {
			c.Bad = true
		}
		p.namePool(key, n)
	})
}

func (c *carrier) pool(x *pool) {
	codec.Nums(c.Codec, &x.handle, &x.threshold, &x.created)
	codec.Amount(c.Codec, &x.reserve, maxSum)
	c.device(&x.device)
	c.device(&x.latest)
	codec.Num(c.Codec, &x.kind)
	c.Check(x.kind == 0 || x.kind == Pinned || x.kind == Managed)
	c.Flags(&x.destroyed)
}

// poolOf returns the number of a carried pool in its process; 0 and false if it is not of the
// process.
func (c *carrier) poolOf(p *process, n uint32) (uint32, bool) {
	list := c.l.opening.pools
	if n == 0 || int(n) > len(list) || list[n-1].process != p {
		return 0, false
	}
	return list[n-1].number, true
}

// allocator tells the latest reading of a process's allocators.
func (o *opener) allocator(p *process) {
	a := p.allocator
	if a == nil {
		return
	}
	for next, first := 0, true; first || !a.reading.Done(next); first = false {
		o.beginOf(carriedAllocator, p)
		codec.Num(o.Codec, &next)
		if first {
			a.carry(&o.carrier)
		}
		a.reading.Carry(o.Codec, &next)
	}
}

// carry carries what does not follow from the reading.
func (a *allocator) carry(c *carrier) {
	codec.Num(c.Codec, &a.time)
	c.counts(&a.repairs)
	c.Flags(&a.read)
	codec.List(c.Codec, &a.firsts, maxDevices, func(f *allocatorFirst) {
		codec.Most(c.Codec, &f.device, maxDevices-1)
		codec.Num(c.Codec, &f.time)
		c.Flags(&f.silent)
	})
	for _, list := range [...]*[]uint64{&a.gone, &a.older, &a.unbooked} {
		codec.List(c.Codec, list, caching.MaxSegments, func(address *uint64) { codec.Num(c.Codec, address) })
	}
}

func takeAllocator(c *carrier, p *process) {
	next := 0
	codec.Num(c.Codec, &next)
	if next == 0 {
		c.Check(p.allocator == nil)
		p.allocator = &allocator{reading: &caching.Reading{}}
		p.allocator.carry(c)
	}
	a := p.allocator
	if c.Check(a != nil && next == len(a.reading.Blocks)); c.Bad {
		return
	}
	had := len(a.reading.Blocks)
	a.reading.Carry(c.Codec, &next)
	p.listedBlocks += len(a.reading.Blocks) - had
	c.Check(p.listedBlocks <= maxListed)
	a.divided = a.reading.Divide()
}
