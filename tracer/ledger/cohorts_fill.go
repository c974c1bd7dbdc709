// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// fillCohorts sets the cohorts of a site in a snapshot of a time, and its recent past up to a window;
// list has room for CohortLen.
func (s *site) fillCohorts(begin, time, recent uint64, out *Site, list []Cohort) {
	c := s.cohorts()
	if c.base == noBase {
		return
	}
	out.Recent = s.recentAt(begin, recent)
	out.Peak, out.Window, out.FirstWindow = c.peak, 1<<c.shift, c.base<<c.shift
	out.Cohorts = list[:c.last+1]
	for i := range out.Cohorts {
		w, x := &s.own.parts.list[i], c.levels.at(i)
		width := float64(uint64(1) << c.shift)
		if i == int(c.last) {
			n := level{c.floor, c.levels.now}
			end, since := c.end(begin), c.levels.until
			until := max(min(time, end), since)
			n.area += float64(c.live) * float64(until-since)
			x, width = n, max(width-float64(end-min(until, end)), 1)
		}
		out.Cohorts[i] = Cohort{
			AllocObjects: uint64(w.allocObjects), AllocBytes: w.alloc,
			LiveObjects: uint64(w.liveObjects), LiveBytes: w.live, Seen: uint64(w.liveObjects),
			Floor: x.floor, Mean: uint64(x.area / width),
		}
		if c.highs>>i&1 != 0 {
			out.Cohorts[i].High = c.peak
		}
	}
}

// fillTensors is fillCohorts for one size class of the sample. Its cohorts add up to its part. Its
// share of floors and peak is its share of the live bytes of all classes or, if there are none, of
// the freed ones.
func (s *site) fillTensors(begin, time, recent uint64, out *Site, part *share) {
	s.fillCohorts(begin, time, recent, out, make([]Cohort, CohortLen))
	to, from := part.live.bytes, s.cohorts().live
	if from == 0 {
		to = part.freed.bytes
		for p := s.cohorts().parts; p != nil; p = p.next {
			for i := range p.list {
				from += p.list[i].alloc
			}
		}
	}
	out.Peak = scale(out.Peak, to, from)
	var live, freed uint64 // blocks of the sample, whose weights differ
	for i := range out.Cohorts {
		w := &out.Cohorts[i]
		live += w.LiveObjects
		freed += minus(w.AllocObjects, w.LiveObjects)
	}
	for i := range out.Cohorts {
		w := &out.Cohorts[i]
		gone := count{minus(w.AllocObjects, w.LiveObjects), w.AllocBytes - w.LiveBytes}
		w.LiveObjects = scale(w.LiveObjects, part.live.objects, live)
		w.LiveBytes = scale(w.LiveBytes, part.live.bytes, s.liveBytes)
		w.AllocObjects = w.LiveObjects + scale(gone.objects, part.freed.objects, freed)
		w.AllocBytes = w.LiveBytes + scale(gone.bytes, part.freed.bytes, s.allocBytes)
		w.Floor, w.High, w.Mean = scale(w.Floor, to, from), scale(w.High, to, from), scale(w.Mean, to, from)
	}
	if out.Recent == nil {
		return
	}
	for i := range out.Recent.Windows {
		w := &out.Recent.Windows[i]
		gone := w.AllocBytes - min(w.LiveBytes, w.AllocBytes)
		w.LiveObjects = uint32(min(scale(uint64(w.LiveObjects), part.live.objects, live), math.MaxUint32))
		w.LiveBytes = scale(w.LiveBytes, part.live.bytes, s.liveBytes)
		w.AllocBytes = w.LiveBytes + scale(gone, part.freed.bytes, s.allocBytes)
		w.Floor, w.Mean = scale(w.Floor, to, from), float32(scale(uint64(w.Mean), to, from))
	}
	for i := range out.Recent.Records {
		x := &out.Recent.Records[i]
		x.Floor, x.Lowest, x.Kept, x.Young = scale(x.Floor, to, from), scale(x.Lowest, to, from), scale(x.Kept, to, from), scale(x.Young, to, from)
	}
}

// merge adds the live bytes of other cohorts, which must not be used afterwards. The windows of both
// begin at the same time then, and are equally long; the counts in them stay apart.
func (c *cohorts) merge(o *cohorts, begin uint64) {
	switch {
	case o.base == noBase:
		return
	case c.base == noBase:
		parts, levels := c.parts, c.levels
		*levels = *o.levels
		*c = *o
		c.parts, c.levels = parts, levels
		for p := c.parts; p != nil; p = p.next {
			c.adopt(p)
		}
		return
	}
	for c.shift < o.shift {
		c.coarsen()
	}
	for o.shift < c.shift {
		o.coarsen()
	}
	for max(c.newest(), o.newest())-min(c.base, o.base) >= CohortLen {
		c.coarsen()
		o.coarsen()
	}
	until, newest, first := max(c.levels.until, o.levels.until), max(c.newest(), o.newest()), min(c.base, o.base)
	for _, x := range [...]*cohorts{c, o} {
		x.reach(begin, begin+newest<<x.shift)
		x.pass(until)
		x.beginAt(first)
	}
	for i := range int(c.last) {
		x, y := c.levels.at(i), o.levels.at(i)
		c.levels.set(i, level{x.floor + y.floor, x.area + y.area})
	}
	if c.shift > recentShift {
		c.mergeRecents(o, begin, until)
	}
	c.levels.now += o.levels.now
	c.floor += o.floor
	c.live += o.live
	c.peak += o.peak
	c.highs |= o.highs
}

// newest returns the number of the newest window, since the session's begin.
func (c *cohorts) newest() uint64 { return c.base + uint64(c.last) }

// beginAt adds empty windows before the first one.
func (c *cohorts) beginAt(first uint64) {
	d := int(c.base - first)
	if d == 0 {
		return
	}
	x := c.levels
	for i := CohortLen - 1; i >= 0; i-- {
		if i >= d {
			x.set(i, x.at(i-d))
		} else {
			x.set(i, level{})
		}
	}
	for p := c.parts; p != nil; p = p.next {
		var to [CohortLen]window
		copy(to[d:], p.list[:])
		p.list = to
	}
	c.base, c.last, c.highs = first, c.last+uint8(d), c.highs<<d
}

// leaveCohorts takes the windows of a site out of cohorts that it shares.
func (s *site) leaveCohorts() {
	if s.shared == nil {
		return
	}
	for at := &s.shared.parts; *at != nil; at = &(*at).next {
		if *at == s.own.parts {
			*at = (*at).next
			break
		}
	}
	s.own.parts.next, s.shared = nil, nil
}
