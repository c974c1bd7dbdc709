// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// Checkpoint is Opening for the same session: the books that are made from it are those of this
// ledger in everything, Snapshot.Opened included. A reader of a capture begins with the checkpoint
// before a moment instead of the first event.
//
// It returns false, and tells nothing, if it would take more than about most bytes in a capture, or
// while the ledger takes an opening itself.
func (l *Ledger) Checkpoint(to Books, most int) bool {
	size := checkpointBytes
	for _, p := range l.procs {
		size += processBytes + len(p.archived) + liveBytes*len(p.live) + siteBytes*len(p.siteOf)
	}
	if l.carrying || most < size {
		return false
	}
	o := l.newOpener(to, true)
	o.tell()
	for _, p := range o.processes {
		if p.End == 0 && len(p.system) > 0 {
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
func (o *opener) purged(p *process) {
	late := slices.Collect(p.all())
	p.withSites(func(sites []*site) {
		archived, before := sites[len(late):], p.siteOf // late sites can have the same keys
		p.siteOf = make(map[siteKey]uint32, len(archived))
		for _, s := range archived {
			p.siteOf[s.siteKey] = s.number
		}
		o.sites(p, archived)
		o.rest(p, archived)
		o.beginOf(carriedPurged, p)
		carryPurged(&o.carrier, p, archived)
		p.siteOf = before
	})
	if len(late) > 0 {
		o.sites(p, late)
		o.beginOf(carriedPurged, p)
		carryFigures(&o.carrier, p, late)
	}
}

// carryPurged carries what of a process would follow from its entries.
func carryPurged(c *carrier, p *process, sites []*site) {
	codec.Amount(c.Codec, &p.unsized, maxSum)
	for i := range p.tensors {
		codec.Amount(c.Codec, &p.tensors[i].sampled, maxSum)
	}
	for i := range p.objects.sites {
		x := &p.objects.sites[i]
		codec.Amount(c.Codec, &x.live, maxSum)
		codec.Amount(c.Codec, &x.bytes, maxSum)
	}
	carryFigures(c, p, sites)
}

// carryFigures carries what would follow from the entries of sites.
func carryFigures(c *carrier, p *process, sites []*site) {
	for _, s := range sites {
		c.Check(s.first == 0)
		for _, x := range [...]*uint64{&s.liveObjects, &s.liveBytes, &s.liveSquares} {
			codec.Amount(c.Codec, x, maxSum)
		}
		if !c.Reads() || s.kind == aliased {
			continue
		}
		live := count{s.liveObjects, s.liveBytes}
		if s.kind == Tensor {
			t := &p.tensors[s.total]
			if c.Check(live.bytes <= maxTensors-min(t.live.bytes, maxTensors)); !c.Bad {
				t.live.take(&live)
			}
			continue
		}
		for _, t := range [...]uint32{s.total, s.sum} {
			t := &p.totals[t]
			if c.Check(live.bytes <= maxSum-t.LiveBytes && live.objects <= maxSum-t.LiveObjects); !c.Bad {
				t.LiveObjects += live.objects
				t.LiveBytes += live.bytes
			}
		}
	}
}

func takePurged(c *carrier, p *process) {
	empty := p.physical == nil && len(p.strays)+len(p.blockList.blocks)+len(p.poolOf)+len(p.exported)+len(p.objects.live) == 0 &&
		(p.walks == nil || p.walks.open == nil && len(p.walks.blocks)+len(p.walks.older.blocks) == 0)
	if c.Check(empty && p.End != 0 && p.held[tableFrees] == 0); c.Bad {
		return
	}
	if p.purged { // these are of late events
		carryFigures(c, p, slices.Collect(p.all()))
		return
	}
	carryPurged(c, p, slices.Collect(p.all()))
	if c.Bad {
		return
	}
	p.purged = true
	c.l.ended = slices.DeleteFunc(c.l.ended, func(x *process) bool { return x == p })
	p.archiveSites()
}
