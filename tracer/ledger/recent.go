// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
)

// Recent is the recent past of a site in windows that are the longer, the older they are, counted
// back from its process's latest event. It does not change.
type Recent struct {
	Newest  uint64         // number of the newest finest window, since Begin
	Windows []RecentWindow // newest first
	Records []Record       // by level of horizons; without one for those that nothing has left
}

// RecentWindow is a Cohort in little memory.
type RecentWindow struct {
	AllocBytes, LiveBytes, Floor uint64
	Mean                         float32
	LiveObjects, Seen            uint32
}

// HorizonStep is how many windows of a level one of the next level has.
const HorizonStep = 1 << recentStep

// Horizon is what a site did in the last 9 to 12 windows of one length.
type Horizon struct {
	Begin       uint64 // ns after Begin of the session; Cohorts may begin later
	Window      uint64 // length of each of Cohorts, ns
	FirstWindow uint64 // begin of the first of Cohorts, ns after Begin
	Cohorts     []Cohort
	Record      Record // of windows of that length before
}

// Horizon returns the horizon of a level, from 0 on: the higher, the longer. It returns false if that
// is longer than the session. High is set in windows whose Floor is higher than ever.
func (r *Recent) Horizon(level int) (Horizon, bool) {
	if r == nil || len(r.Windows) == 0 || recentStart(r.Newest, level) == 0 {
		return Horizon{}, false
	}
	shift := recentStep * level
	start, first := recentStart(r.Newest, level), r.first()
	from := max(start, first>>shift<<shift)
	h := Horizon{Begin: start << recentShift, Window: 1 << (recentShift + shift), FirstWindow: from << recentShift, Cohorts: make([]Cohort, (r.Newest-from)>>shift+1)}
	for i := range h.Cohorts {
		h.Cohorts[i].Floor = math.MaxUint64
	}
	areas := make([]float64, len(h.Cohorts))
	for i, x := range recentSpans(r.Newest, first) {
		if x.from < from {
			break
		}
		k, w := (x.from-from)>>shift, &r.Windows[i]
		c := &h.Cohorts[k]
		c.AllocBytes += w.AllocBytes
		c.LiveBytes += w.LiveBytes
		c.LiveObjects += uint64(w.LiveObjects)
		c.AllocObjects += uint64(w.LiveObjects)
		c.Seen += uint64(w.Seen)
		c.Floor = min(c.Floor, w.Floor)
		areas[k] += float64(w.Mean) * float64(x.to-x.from)
	}
	for k := range h.Cohorts {
		begin := from + uint64(k)<<shift
		h.Cohorts[k].Mean = uint64(areas[k] / float64(min(begin+1<<shift, r.Newest+1)-begin))
	}
	if level < len(r.Records) {
		h.Record = r.Records[level]
	}
	highest := h.Record.Floor
	for i := range h.Cohorts {
		if c := &h.Cohorts[i]; c.Floor > highest {
			highest, c.High = c.Floor, c.Floor
		}
	}
	return h, true
}

// first returns the number of the first finest window.
func (r *Recent) first() uint64 {
	for i, x := range recentSpans(r.Newest, 0) {
		if i == len(r.Windows)-1 {
			return x.from
		}
	}
	return 0
}

// add adds the record of another site: that of the sum is at most as high, and varies at most as much.
func (r *Record) add(y Record) {
	if r.Lowest == math.MaxUint64 || y.Lowest == math.MaxUint64 {
		r.Lowest = min(r.Lowest, y.Lowest)
	} else {
		r.Lowest += y.Lowest
	}
	r.Floor, r.Kept, r.Young = r.Floor+y.Floor, r.Kept+y.Kept, r.Young+y.Young
}

// Varied returns by how much floors differed.
func (r *Record) Varied() uint64 { return r.Floor - min(r.Lowest, r.Floor) }

// newestRecent returns the number of the newest finest window of a site; false if it is unknown.
func (s *site) newestRecent() (uint64, bool) {
	switch c := s.cohorts(); {
	case c.base == noBase:
	case c.levels.recents != nil:
		return c.levels.recents.newest, true
	case c.shift <= recentShift:
		return c.newest() >> (recentShift - c.shift), true
	}
	return 0, false
}

// recentAt returns the recent past of a site up to a window; nil if it is unknown.
func (s *site) recentAt(begin, newest uint64) *Recent {
	c := s.cohorts()
	if own, ok := s.newestRecent(); !ok || newest == 0 || own > newest {
		return nil
	}
	var r recents
	var list []window
	if c.levels.recents == nil {
		r, list = c.recentsOf(), c.recentOf(s.own.parts)
	} else {
		r, list = *c.levels.recents, slices.Clone(s.own.parts.recent)
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
	for i, x := range recentSpans(newest, r.first) {
		w, area, width := &list[i], float64(r.lows[i].area), float64(x.to-x.from)*(1<<recentShift)
		if i == 0 {
			area, width = r.now, max(float64(r.until-min(r.until, begin+newest<<recentShift)), 1)
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
