// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

// site returns the number of the site with this key.
func (l *Ledger) site(key siteKey) uint32 {
	slot := &l.recent[key.slot()]
	if n := *slot; int(n) < len(l.sites) && l.sites[n].siteKey == key {
		return n
	}
	n := l.findSite(key)
	*slot = n
	return n
}

// slot is a place in Ledger.recent. Ids of stacks are hashes already, but need not be.
func (k *siteKey) slot() uint64 {
	return (k.stack + k.context + uint64(uint32(k.device))<<8 + uint64(k.class)) * 0x9e3779b97f4a7c15 >> (64 - recentBits)
}

func (l *Ledger) findSite(key siteKey) uint32 {
	n, ok := l.siteOf[key]
	if ok {
		return n
	}
	p := &l.procs[key.process]
	l.spend(len(p.totals) + len(p.tensors))
	s := site{siteKey: key, ended: l.endings}
	if !l.room(tableSites, p) || !l.room(tableEver, p) {
		if key.stack != 0 {
			l.warnOf(p.PID, fmt.Sprintf("process %d has too many stacks: allocations from the rest are shown without a stack", p.PID))
			key.stack, s.crowded = 0, 1
		}
		s.bare = true
		n, ok = l.siteOf[key]
		if !ok && (!l.room(tableBare, p) || !l.room(tableEver, p)) {
			key.context, s.free = 0, true
			n, ok = l.siteOf[key]
		}
		if ok {
			l.sites[n].crowded += s.crowded
			return n
		}
		s.siteKey = key
	}
	switch {
	case s.free:
	case s.bare:
		l.hold(tableBare, p)
		l.hold(tableEver, p)
	default:
		l.hold(tableSites, p)
		l.hold(tableEver, p)
	}
	l.limiter.sites++
	if last := len(l.freeSites) - 1; last >= 0 {
		n, l.freeSites = l.freeSites[last], l.freeSites[:last]
		s.own = l.sites[n].own
	} else {
		n = uint32(len(l.sites))
		l.sites = append(l.sites, site{})
	}
	switch key.kind {
	case aliased:
	case Tensor:
		s.total = l.tensorsOn(p, key.device)
	default:
		s.total, s.sum = p.total(key.device, key.kind), p.total(allDevices, key.kind)
	}
	l.addCohorts(&s, n)
	l.sites[n] = s
	l.siteOf[key] = n
	p.sites = append(p.sites, n)
	return n
}
