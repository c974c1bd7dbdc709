// SPDX-License-Identifier: Apache-2.0

package growth

import "math"

const (
	// CohortLen is the most windows of Site.Cohorts.
	CohortLen = 16

	firstWindow = 20 // finest window: 2^20 ns, 1 ms
)

// Cohort sums what a site allocated in one window of time, and how much of that still lives. At the
// same age, a leak leaves survivors without end, while a cache frees them some day.
type Cohort struct {
	AllocObjects, AllocBytes uint64 // AllocObjects: at most 2^32-1 in one size class
	LiveObjects, LiveBytes   uint64 // those of them that live now
	// Those of LiveObjects that are in the sample; all if there is no sampling.
	Seen  uint64
	Floor uint64 // least live bytes of the whole site during the window
	Mean  uint64 // mean of them by time, up to now; 0 before the site's first allocation
	// Site.Peak if the site's live bytes reached a new maximum in the window; of several sites
	// shown as one, the sum over those that did.
	High uint64
}

// cohorts are the cohorts of one site, or of all sites of tensors that differ by size class only: a
// list that is copied into a longer one each time goes from class to class, and its floor counts.
// Windows begin at multiples of the step since Begin; when there are too many, the step doubles,
// and two windows become one.
type cohorts struct {
	base   uint64 // number of the first window, since Begin; noBase before the first allocation
	live   uint64 // bytes
	peak   uint64 // of live bytes
	floor  uint64 // floor of the newest window
	parts  *windows
	levels *levels // of the windows before the newest
	highs  uint16  // bit i: a new peak in window i
	last   uint8   // index of the newest window
	shift  uint8   // a window is 2^shift ns
}

// level is what the live bytes were during one window.
type level struct {
	floor uint64
	area  float64 // bytes times ns
}

// levels has one for each window, in little memory.
type levels struct {
	floor   [CohortLen]uint64
	area    [CohortLen]float32
	now     float64  // area of the newest window
	until   uint64   // time up to which it is known
	recents *recents // nil while a window is no longer than the finest there
}

func (x *levels) at(i int) level { return level{x.floor[i], float64(x.area[i])} }

func (x *levels) set(i int, y level) { x.floor[i], x.area[i] = y.floor, float32(y.area) }

func (x *level) add(y *level) {
	x.floor, x.area = min(x.floor, y.floor), x.area+y.area
}

// windows has the counts of one site by window. The time of an entry determines its window.
type windows struct {
	list   [CohortLen]window
	recent []window // newest first, as recents.lows
	next   *windows // those of another size class
}

type window struct {
	alloc, live               uint64
	allocObjects, liveObjects uint32
}

const noBase = math.MaxUint64

// number returns the number of the window of a time, counted from the first one; huge if the time
// is before that.
func (c *cohorts) number(begin, time uint64) uint64 { return minus(time, begin)>>(c.shift%64) - c.base }

// index returns the index of the window of an entry.
func (c *cohorts) index(begin, birth uint64) uint64 {
	i := c.number(begin, birth)
	if i > uint64(c.last) {
		return 0 // events come nearly in order
	}
	return i % CohortLen
}

// reach makes room for a time.
func (c *cohorts) reach(begin, time uint64) {
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
		c.pass(c.end(begin))
		c.levels.set(int(c.last), level{c.floor, c.levels.now})
		c.last++
		c.floor, c.levels.now = c.live, 0
	}
}

// end returns the time at which the newest window ends.
func (c *cohorts) end(begin uint64) uint64 { return begin + (c.base+uint64(c.last)+1)<<c.shift }

// pass adds the time until now to the area of the newest window.
func (c *cohorts) pass(time uint64) {
	if x := c.levels; time > x.until {
		x.now += float64(c.live) * float64(time-x.until)
		x.until = time
	}
}

// coarsen doubles the step.
func (c *cohorts) coarsen() {
	if c.shift == RecentShift {
		c.startRecents(0)
	}
	old := c.levels
	old.set(int(c.last), level{c.floor, old.now})
	odd, n := int(c.base&1), int(c.last)
	sum := levels{until: old.until, recents: old.recents}
	highs := uint16(0)
	for i := 0; i <= n; i++ {
		k := (i + odd) / 2
		if i == 0 || (i+odd)%2 == 0 {
			sum.set(k, old.at(i))
		} else {
			x, y := sum.at(k), old.at(i)
			x.add(&y)
			sum.set(k, x)
		}
		highs |= c.highs >> i & 1 << k
	}
	for p := c.parts; p != nil; p = p.next {
		var to [CohortLen]window
		for i := 0; i <= n; i++ {
			to[(i+odd)/2].add(&p.list[i])
		}
		p.list = to
	}
	*old, c.highs, c.last = sum, highs, uint8((n+odd)/2)
	x := old.at(int(c.last))
	c.floor, old.now = x.floor, x.area
	c.base /= 2
	c.shift++
}

func (w *window) add(x *window) {
	w.alloc += x.alloc
	w.live += x.live
	w.liveObjects += x.liveObjects
	w.allocObjects += min(x.allocObjects, math.MaxUint32-w.allocObjects)
}

func (w *window) allocated(size uint64) {
	w.alloc += size
	w.live += size
	w.liveObjects++
	if w.allocObjects != math.MaxUint32 {
		w.allocObjects++
	}
}

func (c *cohorts) rise(size uint64) {
	c.live += size
	if c.live > c.peak {
		c.peak = c.live
		c.highs |= 1 << c.last
	}
}

func (c *cohorts) fall(size uint64) {
	c.live -= size
	c.floor = min(c.floor, c.live)
	if c.levels.recents != nil {
		c.levels.recents.lows[0].floor = min(c.levels.recents.lows[0].floor, c.live)
	}
}

// merge adds the live bytes of other cohorts, which must not be used afterwards. The windows of
// both begin at the same time then, and are equally long; the counts in them stay apart.
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
	if c.shift > RecentShift {
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

func minus(a, b uint64) uint64 { return max(a, b) - b }
