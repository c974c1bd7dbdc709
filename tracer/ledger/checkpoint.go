// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// Checkpoint is Opening for the same session: the books that are made from it are those of this
// ledger in everything, Snapshot.Opened included. A reader of a capture begins with the checkpoint
// before a moment instead of the first event.
//
// It returns false, and tells nothing, if it would take more than about most bytes in a capture.
func (l *Ledger) Checkpoint(to Books, most int) bool {
	size := checkpointBytes + liveBytes*len(l.live) + siteBytes*len(l.siteOf)
	for n := range l.procs {
		size += processBytes + len(l.procs[n].archived)
	}
	if l.carrying || most < size {
		return false
	}
	o := l.newOpener(to, true)
	o.tell()
	for _, n := range o.processes {
		if p := &l.procs[n]; p.End == 0 && len(p.system) > 0 {
			in := SystemReading{PID: p.PID, Time: p.system[0].Time, Cut: p.system[0].Cut}
			for _, x := range p.system {
				in.On = append(in.On, SystemOn{x.UUID, x.Bytes})
			}
			to.Tell(in)
		}
	}
	return true
}

// Restored reports whether the books were made from an opening or a checkpoint that was whole.
func (l *Ledger) Restored() bool { return l.opening != nil && l.opening.whole }

// Rough sizes of a checkpoint in a capture, compressed.
const (
	checkpointBytes = 8 << 10
	processBytes    = 400
	liveBytes       = 12 // of a live allocation
	siteBytes       = 250
)

// purged tells a process whose entries were purged: its archived sites, what refers to these, and
// its sites of late events.
func (o *opener) purged(k, n uint32) {
	l, c, p := o.l, &o.carrier, &o.l.procs[n]
	late := p.sites
	l.withSites(n, func(sites []uint32) {
		archived := sites[len(late):]
		o.site = append(o.site, make([]uint32, max(len(l.sites)-len(o.site), 0))...)
		keys := make(map[siteKey]uint32, len(archived)) // of late sites with the same keys
		for _, number := range archived {
			key := l.sites[number].siteKey
			if was, ok := l.siteOf[key]; ok {
				keys[key] = was
			}
			l.siteOf[key] = number
		}
		o.sites(k, archived)
		o.rest(k, n, archived)
		o.begin(carriedPurged, func() { num(c, &k) })
		l.carryPurged(c, p, archived)
		for _, number := range archived {
			delete(l.siteOf, l.sites[number].siteKey)
		}
		for key, was := range keys {
			l.siteOf[key] = was
		}
	})
	if len(late) > 0 {
		o.sites(k, late)
		o.begin(carriedPurged, func() { num(c, &k) })
		l.carryFigures(c, p, late)
	}
}

// carryPurged carries what of a process would follow from its entries.
func (l *Ledger) carryPurged(c *carrier, p *process, sites []uint32) {
	amount(c, &p.unsized, maxSum)
	for i := range p.tensors {
		amount(c, &p.tensors[i].sampled, maxSum)
	}
	for i := range p.objects.sites {
		x := &p.objects.sites[i]
		amount(c, &x.live, maxSum)
		amount(c, &x.bytes, maxSum)
	}
	l.carryFigures(c, p, sites)
}

// carryFigures carries what would follow from the entries of sites.
func (l *Ledger) carryFigures(c *carrier, p *process, sites []uint32) {
	for _, n := range sites {
		s := &l.sites[n]
		c.check(s.first == 0)
		for _, x := range [...]*uint64{&s.liveObjects, &s.liveBytes, &s.liveSquares} {
			amount(c, x, maxSum)
		}
		if !c.reads() || s.kind == aliased {
			continue
		}
		live := count{s.liveObjects, s.liveBytes}
		if s.kind == Tensor {
			t := &p.tensors[s.total]
			if c.check(live.bytes <= maxTensors-min(t.live.bytes, maxTensors)); !c.bad {
				t.live.take(&live)
			}
			continue
		}
		for _, t := range [...]uint32{s.total, s.sum} {
			t := &p.totals[t]
			if c.check(live.bytes <= maxSum-t.LiveBytes && live.objects <= maxSum-t.LiveObjects); !c.bad {
				t.LiveObjects += live.objects
				t.LiveBytes += live.bytes
			}
		}
	}
}

func (l *Ledger) takePurged(c *carrier, n uint32) {
	p := &l.procs[n]
	none := p.physical == nil && len(p.strays)+len(p.blockList.blocks)+len(p.pools)+len(p.exported)+len(p.objects.live) == 0 &&
		(p.walks == nil || p.walks.open == nil && len(p.walks.blocks)+len(p.walks.older.blocks) == 0)
	if c.check(none && p.End != 0 && p.held[tableFrees] == 0); c.bad {
		return
	}
	if p.purged { // these are of late events
		l.carryFigures(c, p, p.sites)
		return
	}
	l.carryPurged(c, p, p.sites)
	if c.bad {
		return
	}
	p.purged = true
	l.ended = slices.DeleteFunc(l.ended, func(x uint32) bool { return x == n })
	l.archive(n)
}
