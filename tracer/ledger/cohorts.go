// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/bits"
)

const (
	// CohortLen is the most windows that Site.Cohorts has.
	CohortLen = 16

	firstWindow = 20 // finest window: 2^20 ns, 1 ms
)

// Cohort is what a site allocated in one window of time and how much of that still lives: of the same age, a
// leak leaves survivors for ever, a cache frees them some day.
type Cohort struct {
	AllocObjects, AllocBytes uint64 // objects: at most 2^32-1 in one size class
	LiveObjects, LiveBytes   uint64 // of those, now
	Seen                     uint64 // of LiveObjects those that were seen: all but where tensors are sampled
	Floor                    uint64 // fewest live bytes that the whole site had during the window
	High                     uint64 // Site.Peak if the site's live bytes reached a new maximum in the window; of what is shown as one site, the sum over the parts that did
}

// cohorts are those of one site. Windows begin at even steps since Begin; the step doubles when there are too
// many, and two windows become one. A block's time says in which one it is.
type cohorts struct {
	windows *windows
	peak    uint64 // of live bytes
	base    uint64 // number of the first window, since Begin; noBase before the first allocation
	highs   uint16 // bit i: a new peak in windows[i]
	last    uint8  // index of the newest window
	shift   uint8  // a window is 2^shift ns
}

type windows [CohortLen]window

type window struct {
	alloc, live, floor        uint64
	allocObjects, liveObjects uint32
}

const (
	noBase       = math.MaxUint64
	windowsPiece = 64
)

// newCohorts are those of a new site. Their windows lie apart, as they are large and sites move.
func (l *Ledger) newCohorts() cohorts {
	if len(l.windows) == 0 {
		l.windows = make([]windows, windowsPiece)
	}
	w := &l.windows[0]
	l.windows = l.windows[1:]
	return cohorts{windows: w, base: noBase, shift: firstWindow}
}

// number is that of the window of a time, counted from the first one; huge if the time is before that.
func (c *cohorts) number(begin, time uint64) uint64 { return minus(time, begin)>>(c.shift%64) - c.base }

// at returns the window of a block.
func (c *cohorts) at(begin, birth uint64) *window {
	i := c.number(begin, birth)
	if i > uint64(c.last) {
		i = 0 // events come nearly in order
	}
	return &c.windows[i%CohortLen]
}

// reach makes room for a time, until which the site had live bytes.
func (c *cohorts) reach(begin, time, live uint64) {
	n := minus(time, begin) >> c.shift
	if c.base == noBase {
		c.base = n
	}
	if n < c.base {
		return
	}
	for n-c.base >= CohortLen {
		c.coarsen()
		n = minus(time, begin) >> c.shift
	}
	for uint64(c.last) < n-c.base {
		c.last++
		c.windows[c.last].floor = live
	}
}

// coarsen doubles the step.
func (c *cohorts) coarsen() {
	odd := int(c.base & 1)
	var to windows
	highs := uint16(0)
	for i := 0; i <= int(c.last); i++ {
		w, x := &c.windows[i], &to[(i+odd)/2]
		if i == 0 || (i+odd)%2 == 0 {
			x.floor = w.floor
		}
		x.floor = min(x.floor, w.floor)
		x.add(w)
		highs |= c.highs >> i & 1 << ((i + odd) / 2)
	}
	*c.windows, c.highs, c.last = to, highs, uint8((int(c.last)+odd)/2)
	c.base /= 2
	c.shift++
}

func (w *window) add(x *window) {
	w.alloc += x.alloc
	w.live += x.live
	w.liveObjects += x.liveObjects
	w.allocObjects += min(x.allocObjects, math.MaxUint32-w.allocObjects)
}

// alloc books a block after which the site has live bytes.
func (c *cohorts) alloc(begin, time, size, live uint64) {
	w := &c.windows[c.last%CohortLen]
	if c.number(begin, time) != uint64(c.last) {
		c.reach(begin, time, live-size)
		w = c.at(begin, time)
	}
	w.alloc += size
	w.live += size
	w.liveObjects++
	if w.allocObjects != math.MaxUint32 {
		w.allocObjects++
	}
	if live > c.peak {
		c.peak = live
		c.highs |= 1 << c.last
	}
}

// free ends a block that was allocated at birth; the site has live bytes left.
func (c *cohorts) free(begin, birth, time, size, live uint64) {
	if c.number(begin, time) != uint64(c.last) {
		c.reach(begin, time, live+size)
	}
	w := c.at(begin, birth)
	w.live -= size
	w.liveObjects--
	if f := &c.windows[c.last%CohortLen].floor; live < *f {
		*f = live
	}
}

// revive undoes the free of a block.
func (c *cohorts) revive(begin, birth, size uint64) {
	w := c.at(begin, birth)
	w.live += size
	w.liveObjects++
}

// grow gives a live block more bytes.
func (c *cohorts) grow(begin, birth, more uint64) {
	w := c.at(begin, birth)
	w.alloc += more
	w.live += more
}

// move gives a block to another site, which has live bytes then.
func (c *cohorts) move(to *cohorts, begin, birth, size, live uint64) {
	w := c.at(begin, birth)
	w.alloc -= size
	w.live -= size
	w.liveObjects--
	w.allocObjects--
	to.alloc(begin, birth, size, live)
}

// fill sets the cohorts of a site until the end of a session of so many ns, when it has live bytes; list has room for CohortLen.
func (c *cohorts) fill(s *Site, list []Cohort, session, live uint64) {
	if c.base == noBase {
		return
	}
	x, w := *c, *c.windows
	x.windows = &w
	x.reach(0, session, live)
	s.Peak, s.Window, s.FirstWindow = x.peak, 1<<x.shift, x.base<<x.shift
	s.Cohorts = list[:x.last+1]
	for i := range s.Cohorts {
		w := &x.windows[i]
		s.Cohorts[i] = Cohort{uint64(w.allocObjects), w.alloc, uint64(w.liveObjects), w.live, uint64(w.liveObjects), w.floor, 0}
		if x.highs>>i&1 != 0 {
			s.Cohorts[i].High = x.peak
		}
	}
}

// fillTensors is fill for a site of the sample, whose cohorts add up to its part; weighted is the weight of what it
// had before.
func (c *cohorts) fillTensors(s *Site, sample *site, part *share, session uint64, weighted func(uint64) uint64) {
	c.fill(s, make([]Cohort, CohortLen), session, sample.liveBytes)
	s.Peak = weighted(s.Peak)
	for i := range s.Cohorts {
		w := &s.Cohorts[i]
		freed := count{minus(w.AllocObjects, w.LiveObjects), w.AllocBytes - w.LiveBytes}
		w.LiveObjects = scale(w.LiveObjects, part.live.objects, sample.liveObjects)
		w.LiveBytes = scale(w.LiveBytes, part.live.bytes, sample.liveBytes)
		w.AllocObjects = w.LiveObjects + scale(freed.objects, part.freed.objects, sample.allocObjects)
		w.AllocBytes = w.LiveBytes + scale(freed.bytes, part.freed.bytes, sample.allocBytes)
		w.Floor = weighted(w.Floor)
		if w.High != 0 {
			w.High = s.Peak
		}
	}
}

// scale returns x * to / from, at most what a device can have; x is a part of from.
func scale(x, to, from uint64) uint64 {
	hi, lo := bits.Mul64(x, to)
	if hi >= from {
		return min(x, maxTensors) // of nothing, or more than all
	}
	n, _ := bits.Div64(hi, lo, from)
	return min(n, maxTensors)
}

// AddCohorts adds those of another site to a site's, and Peak; the windows become as long as needed. No list is changed.
func (s *Site) AddCohorts(part *Site) {
	s.Peak += part.Peak
	switch {
	case len(part.Cohorts) == 0:
		return
	case len(s.Cohorts) == 0:
		s.Window, s.FirstWindow, s.Cohorts = part.Window, part.FirstWindow, part.Cohorts
		return
	}
	window := max(s.Window, part.Window)
	end := func(x *Site) uint64 { return x.FirstWindow + x.Window*uint64(len(x.Cohorts)) }
	first := min(s.FirstWindow, part.FirstWindow)
	for (max(end(s), end(part))-1)/window-first/window >= CohortLen {
		window *= 2
	}
	first -= first % window
	sum := make([]Cohort, (max(end(s), end(part))-1-first)/window+1)
	for _, x := range [...]*Site{s, part} {
		x.addTo(sum, first, window)
	}
	s.Window, s.FirstWindow, s.Cohorts = window, first, sum
}

// addTo adds the cohorts to windows that are as long or longer. Before its first one a site had nothing.
func (s *Site) addTo(sum []Cohort, first, window uint64) {
	floors := make([]uint64, len(sum))
	highs := make([]uint64, len(sum))
	seen := make([]bool, len(sum))
	for i := range s.Cohorts {
		w := &s.Cohorts[i]
		at := s.FirstWindow + s.Window*uint64(i)
		k := (at - first) / window
		x := &sum[k]
		x.AllocObjects += w.AllocObjects
		x.AllocBytes += w.AllocBytes
		x.LiveObjects += w.LiveObjects
		x.LiveBytes += w.LiveBytes
		x.Seen += w.Seen
		if !seen[k] {
			seen[k], floors[k] = true, w.Floor
		}
		floors[k], highs[k] = min(floors[k], w.Floor), max(highs[k], w.High)
	}
	for k := range sum {
		sum[k].Floor += floors[k]
		sum[k].High += highs[k]
	}
}
