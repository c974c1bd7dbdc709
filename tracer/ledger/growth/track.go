// SPDX-License-Identifier: Apache-2.0

// Package growth follows the live bytes of sites over time: cohorts of what was allocated together,
// a recent past in windows that are the longer, the older they are, and a history for charts. It
// knows nothing of processes and stacks. Times are ns of CLOCK_MONOTONIC; begin is that of the
// session.
package growth

import (
	"fmt"
	"slices"
)

// Track is the past of one site.
type Track struct {
	History History
	own     cohorts
	shared  *cohorts // used instead of own
}

// Group identifies the tracks that count their live bytes together: those that Share made share.
type Group = *cohorts

// Start gives a new track windows.
func (t *Track) Start() {
	t.own = cohorts{base: noBase, shift: firstWindow, parts: &windows{}, levels: &levels{}}
}

// Share has a new track count its live bytes together with another one.
func (t *Track) Share(first *Track) {
	if t.own.parts == nil {
		t.own = cohorts{base: noBase, shift: firstWindow, parts: &windows{}}
	}
	if first.shared == nil {
		first.shared = new(cohorts)
		*first.shared = first.own
	}
	t.shared = first.shared
	t.shared.adopt(t.own.parts)
	t.own.parts.next, t.shared.parts = t.shared.parts, t.own.parts
}

// Leave ends sharing.
func (t *Track) Leave() {
	if t.shared == nil {
		return
	}
	for at := &t.shared.parts; *at != nil; at = &(*at).next {
		if *at == t.own.parts {
			*at = (*at).next
			break
		}
	}
	t.own.parts.next, t.shared = nil, nil
}

// Group returns the tracks that this one shares with, itself alone if with none.
func (t *Track) Group() Group { return t.group() }

func (t *Track) group() *cohorts {
	if t.shared != nil {
		return t.shared
	}
	return &t.own
}

// IsShared reports whether the track shares with others.
func (t *Track) IsShared() bool { return t.shared != nil }

// Add adds a new entry of size bytes at a time.
func (t *Track) Add(begin, time, size uint64) {
	c := t.group()
	i := c.number(begin, time)
	if i != uint64(c.last) {
		c.reach(begin, time)
		i = c.index(begin, time)
	}
	c.pass(time)
	t.own.parts.list[i%CohortLen].allocated(size)
	if c.shift > RecentShift {
		c.recently(begin, time)
		t.recent(begin, time).allocated(size)
	}
	c.rise(size)
}

// Remove removes an entry that was allocated at birth.
func (t *Track) Remove(begin, birth, time, size uint64) {
	c := t.group()
	if c.number(begin, time) != uint64(c.last) {
		c.reach(begin, time)
	}
	c.pass(time)
	w := &t.own.parts.list[c.index(begin, birth)]
	w.live -= size
	w.liveObjects--
	if c.shift > RecentShift {
		c.recently(begin, time)
		t.recent(begin, birth).freed(size)
	}
	c.fall(size)
}

// Revive undoes the free of an entry.
func (t *Track) Revive(begin, birth, size uint64) {
	c := t.group()
	w := &t.own.parts.list[c.index(begin, birth)]
	w.live += size
	w.liveObjects++
	if c.levels.recents != nil {
		w := t.recent(begin, birth)
		w.live += size
		w.liveObjects++
	}
	c.rise(size)
}

// Grow adds bytes to a live entry.
func (t *Track) Grow(begin, birth, more uint64) {
	c := t.group()
	w := &t.own.parts.list[c.index(begin, birth)]
	w.alloc += more
	w.live += more
	if c.levels.recents != nil {
		w := t.recent(begin, birth)
		w.alloc += more
		w.live += more
	}
	c.rise(more)
}

// Move moves an entry to another site.
func (t *Track) Move(to *Track, begin, birth, size uint64) {
	w := &t.own.parts.list[t.group().index(begin, birth)]
	w.alloc -= size
	w.live -= size
	w.liveObjects--
	w.allocObjects--
	c := t.group()
	if c.levels.recents != nil {
		w := t.recent(begin, birth)
		w.freed(size)
		w.alloc -= min(w.alloc, size)
		w.allocObjects -= min(w.allocObjects, 1)
	}
	c.fall(size)
	to.Add(begin, birth, size)
}

// recent returns the recent window of an entry, the oldest one if it is older than that.
func (t *Track) recent(begin, birth uint64) *window {
	r := t.group().levels.recents
	return &t.own.parts.recent[RecentPlace(r.newest, max(minus(birth, begin)>>RecentShift, r.first))]
}

// Join adds the history and the counts of another track of the same windows: see Merge.
func (t *Track) Join(o *Track) {
	t.History.add(&o.History)
	for i := range o.own.parts.list {
		t.own.parts.list[i].add(&o.own.parts.list[i])
	}
	for i := range o.own.parts.recent {
		t.own.parts.recent[i].add(&o.own.parts.recent[i])
	}
}

// Merge has a group count the live bytes of another one, which must not be used afterwards. The
// windows of both are the same then; the counts in them stay apart.
func Merge(to, from Group, begin uint64) { to.merge(from, begin) }

// Recount counts the live entries of a track in their windows again: each calls add for every one.
func (t *Track) Recount(begin uint64, each func(add func(birth, size uint64))) {
	c, list := t.group(), &t.own.parts.list
	for i := range list {
		w := &list[i]
		w.alloc -= w.live
		w.allocObjects -= min(w.liveObjects, w.allocObjects)
		w.live, w.liveObjects = 0, 0
	}
	for i := range t.own.parts.recent {
		w := &t.own.parts.recent[i]
		w.alloc -= min(w.live, w.alloc)
		w.allocObjects -= min(w.liveObjects, w.allocObjects)
		w.live, w.liveObjects = 0, 0
	}
	each(func(birth, size uint64) {
		list[c.index(begin, birth)].allocated(size)
		if c.levels.recents != nil {
			t.recent(begin, birth).allocated(size)
		}
	})
}

// Whole returns the live bytes of all tracks of the group, and what they allocated.
func (t *Track) Whole() (live, allocated uint64) {
	c := t.group()
	for p := c.parts; p != nil; p = p.next {
		for i := range p.list {
			allocated += p.list[i].alloc
		}
	}
	return c.live, allocated
}

// Check sums the windows of a track, and reports whether they contradict each other.
func (t *Track) Check() (live, objects uint64, err error) {
	for i := range t.own.parts.list {
		w := &t.own.parts.list[i]
		live += w.live
		objects += uint64(w.liveObjects)
		if w.live > w.alloc {
			err = fmt.Errorf("a window has %d live bytes of %d", w.live, w.alloc)
		}
	}
	if !t.HasRecent() {
		return live, objects, err
	}
	recent := uint64(0)
	for i := range t.own.parts.recent {
		recent += t.own.parts.recent[i].live
	}
	if recent != live {
		err = fmt.Errorf("recent windows have %d live bytes, the others %d", recent, live)
	}
	return live, objects, err
}

// HasRecent reports whether the track has windows of its recent past.
func (t *Track) HasRecent() bool { return t.group().levels.recents != nil }

// Reaches reports whether what began since ns after the session's begin exists for as long as the
// shortest horizon up to a window is.
func Reaches(newest, since uint64) bool { return since>>RecentShift < RecentStart(newest, 0) }

// View is what a track shows at a moment.
type View struct {
	Peak        uint64   // most live bytes
	Window      uint64   // length of each of Cohorts, ns
	FirstWindow uint64   // begin of the first of Cohorts, ns after the session's begin
	Cohorts     []Cohort // from the first allocation to the latest event
	Recent      *Recent  // nil if it is unknown
}

// View returns what the track shows of a site at a time, and its recent past up to a window; list
// has room for CohortLen. It returns false before the first allocation.
func (t *Track) View(begin, time, recent uint64, list []Cohort) (v View, ok bool) {
	c := t.group()
	if c.base == noBase {
		return View{}, false
	}
	v = View{Peak: c.peak, Window: 1 << c.shift, FirstWindow: c.base << c.shift, Cohorts: list[:c.last+1], Recent: t.recentAt(begin, recent)}
	for i := range v.Cohorts {
		w, x := &t.own.parts.list[i], c.levels.at(i)
		width := float64(uint64(1) << c.shift)
		if i == int(c.last) {
			n := level{c.floor, c.levels.now}
			end, since := c.end(begin), c.levels.until
			until := max(min(time, end), since)
			n.area += float64(c.live) * float64(until-since)
			x, width = n, max(width-float64(end-min(until, end)), 1)
		}
		v.Cohorts[i] = Cohort{
			AllocObjects: uint64(w.allocObjects), AllocBytes: w.alloc,
			LiveObjects: uint64(w.liveObjects), LiveBytes: w.live, Seen: uint64(w.liveObjects),
			Floor: x.floor, Mean: uint64(x.area / width),
		}
		if c.highs>>i&1 != 0 {
			v.Cohorts[i].High = c.peak
		}
	}
	return v, true
}

// NewestRecent returns the number of the newest finest window of a site; false if it is unknown.
func (t *Track) NewestRecent() (uint64, bool) {
	switch c := t.group(); {
	case c.base == noBase:
	case c.levels.recents != nil:
		return c.levels.recents.newest, true
	case c.shift <= RecentShift:
		return c.newest() >> (RecentShift - c.shift), true
	}
	return 0, false
}

// recentAt returns the recent past of a site up to a window; nil if it is unknown.
func (t *Track) recentAt(begin, newest uint64) *Recent {
	c := t.group()
	if own, ok := t.NewestRecent(); !ok || newest == 0 || own > newest {
		return nil
	}
	var r recents
	var list []window
	if c.levels.recents == nil {
		r, list = c.recentsOf(), c.recentOf(t.own.parts)
	} else {
		r, list = *c.levels.recents, slices.Clone(t.own.parts.recent)
		r.lows, r.records = slices.Clone(r.lows), slices.Clone(r.records)
	}
	if was := r.newest; was < newest {
		parts := c.parts
		if c.levels.recents == nil {
			parts = nil
		}
		r.advance(begin, newest, c.live, parts)
		list = aged(list, r.first, was, newest)
	}
	out := &Recent{newest, make([]RecentWindow, len(list)), r.records}
	for i, x := range RecentSpans(newest, r.first) {
		w, area, width := &list[i], float64(r.lows[i].area), float64(x.To-x.From)*(1<<RecentShift)
		if i == 0 {
			area, width = r.now, max(float64(r.until-min(r.until, begin+newest<<RecentShift)), 1)
			if area == 0 {
				area = float64(c.live) * width
			}
		}
		out.Windows[i] = RecentWindow{
			AllocBytes: w.alloc, LiveBytes: w.live, Floor: r.lows[i].floor, Mean: float32(area / width),
			LiveObjects: w.liveObjects, Seen: w.liveObjects,
		}
	}
	return out
}
