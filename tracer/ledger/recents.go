// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"iter"
	"math"
	"math/bits"
)

const (
	// The finest windows of a site's recent past are 2^36 ns, 69 s. Before a site has more of them
	// than CohortLen, its cohorts are as fine.
	recentShift = 36

	// Windows of level k are 4^k of the finest ones. Of each level 9 to 12 are counted back from the
	// newest event, so each horizon is three to four times as long as the one before.
	recentStep = 2
	recentKept = 8

	recentYoung = 4

	maxRecent = 132 // most windows: of 2^28 finest ones, which is all time there is
)

// recents is how cohorts go on where windows over the whole life have become longer than the finest
// here: windows from the newest event back, the older the longer, which become one as they age.
type recents struct {
	first, newest uint64 // numbers of the first and the newest finest window, since Begin
	until         uint64 // time up to which now is known
	now           float64
	lows          []low // newest first
	records       []Record
}

// low is what the live bytes were during one window.
type low struct {
	floor uint64
	// Most bytes that lived of one of the windows that it was made of when it was made; of a finest
	// window, when it was so old as recentYoung.
	kept  uint64
	young uint64  // kept before it was made
	area  float32 // bytes times ns; of the newest window, recents.now has it
}

// Record is what windows that are older than a horizon had. Growth that breaks no record is what the
// site always does.
type Record struct {
	Floor  uint64 // highest Floor
	Lowest uint64 // lowest Floor; 2^64-1 if nothing has left the horizon
	// Most bytes of one window that lived when it left the horizon, and when it was a quarter to a third
	// as old, of windows that have left the next longer one. Young is of windows of the level below.
	Kept, Young uint64
}

// recentSpan is a range of finest windows.
type recentSpan struct{ from, to uint64 }

// recentStart returns the number of the first finest window within the horizon of a level; 0 if the
// horizon is longer than the session.
func recentStart(newest uint64, level int) uint64 {
	n := newest >> (recentStep * level)
	if n < recentKept {
		return 0
	}
	return (n - recentKept) &^ (1<<recentStep - 1) << (recentStep * level)
}

// recentLevel returns the level of the window with the finest window n: the lowest one whose horizon
// n is in, where n and newest differ by at most two of the windows of the next level.
func recentLevel(newest, n uint64) int {
	if n >= newest {
		return 0
	}
	level := max((bits.Len64(newest-n)-1)/recentStep-1, 0)
	if next := recentStep * (level + 1); newest>>next-n>>next > recentKept>>recentStep {
		level++
	}
	return level
}

// recentPlace returns how many windows are newer than the one with the finest window n. A level has
// recentKept windows without those that the level below covers, and as many more as the level's digit of
// newest to the base 4 says.
func recentPlace(newest, n uint64) int {
	if n > newest {
		return 0
	}
	const each = recentKept - recentKept>>recentStep
	level := recentLevel(newest, n)
	shift := recentStep * level
	lower := newest & (1<<shift - 1)
	digits := bits.OnesCount64(lower&0x5555555555555555) + 2*bits.OnesCount64(lower&0xaaaaaaaaaaaaaaaa)
	return each*level + digits + int(newest>>shift-n>>shift)
}

// recentSize returns how many of the finest windows the window with the finest window n has.
func recentSize(newest, n uint64) uint64 { return 1 << (recentStep * recentLevel(newest, n)) }

// recentSpans yields all windows, newest first, by place.
func recentSpans(newest, first uint64) iter.Seq2[int, recentSpan] {
	return func(yield func(int, recentSpan) bool) {
		place, end := 0, newest+1
		for level := 0; ; level++ {
			start, size := recentStart(newest, level), uint64(1)<<(recentStep*level)
			for end > start {
				from := (end - 1) &^ (size - 1)
				if !yield(place, recentSpan{from, end}) || from <= first {
					return
				}
				place, end = place+1, from
			}
		}
	}
}

// recently makes room for the time of an event, up to which it counts the area.
func (c *cohorts) recently(begin, time uint64) {
	n := minus(time, begin) >> recentShift
	if c.levels.recents == nil { // of a capture without them
		c.startRecents(n)
	}
	if n > c.levels.recents.newest {
		c.advance(begin, n)
	}
	c.levels.recents.pass(c.live, time)
}

// recent returns the recent window of an entry, the oldest one if it is older than that.
func (s *site) recent(begin, birth uint64) *window {
	r := s.cohorts().levels.recents
	return &s.own.parts.recent[recentPlace(r.newest, max(minus(birth, begin)>>recentShift, r.first))]
}

// freed removes an entry. An entry from before the windows of a capture without them is in none.
func (w *window) freed(size uint64) {
	w.live -= min(w.live, size)
	w.liveObjects -= min(w.liveObjects, 1)
}

// startRecents begins the recent past: with the cohorts, if they are as fine as its windows or finer.
func (c *cohorts) startRecents(newest uint64) {
	if c.shift > recentShift {
		c.levels.recents = &recents{newest: newest, first: newest, lows: []low{{floor: c.live}}}
		for p := c.parts; p != nil; p = p.next {
			p.recent = make([]window, 1)
		}
		return
	}
	r := c.recentsOf()
	c.levels.recents = &r
	for p := c.parts; p != nil; p = p.next {
		p.recent = c.recentOf(p)
	}
}

// recentsOf returns the recent past that cohorts know, whose windows are no longer than its own.
func (c *cohorts) recentsOf() recents {
	finer := recentShift - c.shift
	r := recents{first: c.base >> finer, newest: c.newest() >> finer, until: c.levels.until}
	r.lows = make([]low, recentPlace(r.newest, r.first)+1)
	for i := range r.lows {
		r.lows[i].floor = math.MaxUint64
	}
	for i := range int(c.last) + 1 {
		x := c.levels.at(i)
		if i == int(c.last) {
			x = level{c.floor, c.levels.now}
		}
		if n := (c.base + uint64(i)) >> finer; n == r.newest {
			r.lows[0].floor = min(r.lows[0].floor, x.floor)
			r.now += x.area
		} else {
			r.lows[recentPlace(r.newest, n)].add(&low{floor: x.floor, area: float32(x.area)})
		}
	}
	return r
}

// recentOf returns the counts of one site that go with recentsOf.
func (c *cohorts) recentOf(p *windows) []window {
	finer := recentShift - c.shift
	newest := c.newest() >> finer
	list := make([]window, recentPlace(newest, c.base>>finer)+1)
	for i := range int(c.last) + 1 {
		list[recentPlace(newest, (c.base+uint64(i))>>finer)].add(&p.list[i])
	}
	return list
}

func (x *low) add(y *low) {
	x.floor, x.kept, x.young, x.area = min(x.floor, y.floor), max(x.kept, y.kept), max(x.young, y.young), x.area+y.area
}

// pass adds the time until now, with so many live bytes, to the area of the newest window.
func (r *recents) pass(live, time uint64) {
	if time > r.until {
		r.now += float64(live) * float64(time-r.until)
		r.until = time
	}
}

// advance makes a window the newest one of cohorts.
func (c *cohorts) advance(begin, newest uint64) {
	r, was := c.levels.recents, c.levels.recents.newest
	r.advance(begin, newest, c.live, c.parts)
	for p := c.parts; p != nil; p = p.next {
		p.recent = aged(p.recent, r.first, was, newest)
	}
}

// advance does so without the counts of sites, which it only reads.
func (r *recents) advance(begin, newest, live uint64, parts *windows) {
	r.note(newest, live)
	r.pass(live, begin+(r.newest+1)<<recentShift)
	r.lows[0].area = float32(r.now)
	var list [maxRecent]low
	n := recentPlace(newest, r.first) + 1
	for i := range n {
		list[i].floor = math.MaxUint64
	}
	part, kept := ^uint64(0), uint64(0) // of the windows of the level below that a new one is made of
	for i, x := range recentSpans(r.newest, r.first) {
		from, to := r.lows[i], &list[recentPlace(newest, x.from)]
		size, live := recentSize(newest, x.from), uint64(0)
		for p := parts; p != nil; p = p.next {
			live += p.recent[i].live
		}
		if age := newest - x.from; size == 1 && age >= recentYoung && r.newest-x.from < recentYoung {
			from.kept = live
		}
		if size > x.to-x.from { // it left a horizon
			if n := x.from &^ (size>>recentStep - 1); n != part {
				part, kept = n, 0
			}
			kept += live
			from.young, from.kept = from.kept, kept
		}
		to.add(&from)
	}
	for i, x := range recentSpans(newest, r.newest) { // since then nothing happened
		from := max(x.from, r.newest+1)
		if x.to > from {
			list[i].add(&low{floor: live, area: float32(live) * float32(min(x.to, newest)-min(from, newest)) * (1 << recentShift)})
		}
	}
	r.lows = grown(r.lows, list[:n])
	r.newest, r.now, r.until = newest, 0, max(r.until, begin+newest<<recentShift)
}

// floor notes what a window that leaves the horizon had at least.
func (r *Record) floor(x uint64) { r.Floor, r.Lowest = max(r.Floor, x), min(r.Lowest, x) }

// keep notes how much was kept of a window of some length that leaves the horizon of a level, in the
// record of the level below. After a pause it may leave both horizons at once.
func (r *Record) keep(x *low, level int, size uint64) {
	switch size {
	case 1 << (recentStep * level):
		r.Kept, r.Young = max(r.Kept, x.kept), max(r.Young, x.young)
	case 1 << (recentStep * (level - 1)):
		r.Young = max(r.Young, x.kept)
	}
}

// aged returns the counts of a site as they are when a window is the newest one.
func aged(from []window, first, was, newest uint64) []window {
	var list [maxRecent]window
	for i, x := range recentSpans(was, first) {
		list[recentPlace(newest, x.from)].add(&from[i])
	}
	return grown(from, list[:recentPlace(newest, first)+1])
}

// grown returns a copy of list in the memory of to, or in little more than it needs.
func grown[T any](to, list []T) []T {
	if cap(to) < len(list) {
		to = make([]T, 0, len(list)+2)
	}
	return append(to[:0], list...)
}

// adopt gives the counts of one more site their windows.
func (c *cohorts) adopt(p *windows) {
	if c.levels.recents != nil && len(p.recent) == 0 {
		p.recent = make([]window, len(c.levels.recents.lows))
	}
}

// mergeRecents is the part of merge that concerns the recent past, up to a time.
func (c *cohorts) mergeRecents(o *cohorts, begin, until uint64) {
	newest := minus(until, begin) >> recentShift
	for _, x := range [...]*cohorts{c, o} {
		if x.levels.recents != nil {
			newest = max(newest, x.levels.recents.newest)
		}
	}
	for _, x := range [...]*cohorts{c, o} {
		x.recently(begin, begin+newest<<recentShift)
		x.recently(begin, until)
	}
	first := min(c.levels.recents.first, o.levels.recents.first)
	for _, x := range [...]*cohorts{c, o} {
		x.beginRecentsAt(first)
	}
	r := c.levels.recents
	for i, y := range o.levels.recents.lows {
		r.lows[i].floor += y.floor
		r.lows[i].kept += y.kept
		r.lows[i].young += y.young
		r.lows[i].area += y.area
	}
	r.now += o.levels.recents.now
	for i, y := range o.levels.recents.records {
		if i == len(r.records) {
			r.records = append(r.records, Record{Lowest: math.MaxUint64})
		}
		r.records[i].add(y)
	}
}

// beginRecentsAt adds empty windows before the first one.
func (c *cohorts) beginRecentsAt(first uint64) {
	r := c.levels.recents
	n := recentPlace(r.newest, first) + 1
	r.first = first
	r.lows = append(r.lows, make([]low, n-len(r.lows))...)
	for p := c.parts; p != nil; p = p.next {
		p.recent = append(p.recent, make([]window, n-len(p.recent))...)
	}
}

// note sets the records of what leaves a horizon when a window becomes the newest one.
func (r *recents) note(newest, live uint64) {
	for level := 0; ; level++ {
		from, to := recentStart(r.newest, level), recentStart(newest, level)
		if to == 0 {
			return
		}
		if level == len(r.records) {
			r.records = append(r.records, Record{Lowest: math.MaxUint64})
		}
		if to <= from {
			continue
		}
		record, group, floor := &r.records[level], ^uint64(0), uint64(math.MaxUint64)
		tell := func() {
			if group != ^uint64(0) && group<<(recentStep*level) > r.first { // nothing is known of before that
				record.floor(floor)
			}
		}
		for i, x := range recentSpans(r.newest, r.first) {
			if x.from >= to {
				continue
			}
			if x.to <= from {
				break
			}
			if n := x.from >> (recentStep * level); n != group {
				tell()
				group, floor = n, math.MaxUint64
			}
			floor = min(floor, r.lows[i].floor)
			if level > 0 {
				r.records[level-1].keep(&r.lows[i], level, x.to-x.from)
			}
		}
		tell()
		if (to-1)>>(recentStep*level) > r.newest>>(recentStep*level) {
			record.floor(live)
		}
	}
}
