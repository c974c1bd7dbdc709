// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"iter"
	"math"
	"math/bits"
)

const (
	// The finest windows of a site's recent past are 2^36 ns, 69 s. Before a site has more of them
	// than CohortLen, its cohorts are as fine.
	RecentShift = 36

	// Windows of level k are 4^k of the finest ones. Of each level 9 to 12 are counted back from
	// the newest event, so each horizon is three to four times as long as the one before.
	RecentStep = 2
	RecentKept = 8

	recentYoung = 4

	MaxRecent = 132 // most windows: of 2^28 finest ones, which is all time there is
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

// Record is what windows that are older than a horizon had. Growth that breaks no record is what
// the site always does.
type Record struct {
	Floor  uint64 // highest Floor
	Lowest uint64 // lowest Floor; 2^64-1 if nothing has left the horizon
	// Most bytes of one window that lived when it left the horizon, and when it was a quarter to a
	// third as old, of windows that have left the next longer one. Young is of windows of the level
	// below.
	Kept, Young uint64
}

// RecentSpan is a range of finest windows.
type RecentSpan struct{ From, To uint64 }

// RecentStart returns the number of the first finest window within the horizon of a level; 0 if the
// horizon is longer than the session.
func RecentStart(newest uint64, level int) uint64 {
	n := newest >> (RecentStep * level)
	if n < RecentKept {
		return 0
	}
	return (n - RecentKept) &^ (1<<RecentStep - 1) << (RecentStep * level)
}

// recentLevel returns the level of the window with the finest window n: the lowest one whose
// horizon n is in, where n and newest differ by at most two of the windows of the next level.
func recentLevel(newest, n uint64) int {
	if n >= newest {
		return 0
	}
	level := max((bits.Len64(newest-n)-1)/RecentStep-1, 0)
	if next := RecentStep * (level + 1); newest>>next-n>>next > RecentKept>>RecentStep {
		level++
	}
	return level
}

// RecentPlace returns how many windows are newer than the one with the finest window n. A level has
// RecentKept windows without those that the level below covers, and as many more as the level's
// digit of newest to the base 4 says.
func RecentPlace(newest, n uint64) int {
	if n > newest {
		return 0
	}
	const each = RecentKept - RecentKept>>RecentStep
	level := recentLevel(newest, n)
	shift := RecentStep * level
	lower := newest & (1<<shift - 1)
	digits := bits.OnesCount64(lower&0x5555555555555555) + 2*bits.OnesCount64(lower&0xaaaaaaaaaaaaaaaa)
	return each*level + digits + int(newest>>shift-n>>shift)
}

// RecentSize returns how many of the finest windows the window with the finest window n has.
func RecentSize(newest, n uint64) uint64 { return 1 << (RecentStep * recentLevel(newest, n)) }

// RecentSpans yields all windows, newest first, by place.
func RecentSpans(newest, first uint64) iter.Seq2[int, RecentSpan] {
	return func(yield func(int, RecentSpan) bool) {
		place, end := 0, newest+1
		for level := 0; ; level++ {
			start, size := RecentStart(newest, level), uint64(1)<<(RecentStep*level)
			for end > start {
				from := (end - 1) &^ (size - 1)
				if !yield(place, RecentSpan{from, end}) || from <= first {
					return
				}
				place, end = place+1, from
			}
		}
	}
}

// recently makes room for the time of an event, up to which it counts the area.
func (c *cohorts) recently(begin, time uint64) {
	n := minus(time, begin) >> RecentShift
	if c.levels.recents == nil { // of a capture without them
		c.startRecents(n)
	}
	if n > c.levels.recents.newest {
		c.advance(begin, n)
	}
	c.levels.recents.pass(c.live, time)
}

// freed removes an entry. An entry from before the windows of a capture without them is in none.
func (w *window) freed(size uint64) {
	w.live -= min(w.live, size)
	w.liveObjects -= min(w.liveObjects, 1)
}

// startRecents begins the recent past: with the cohorts, if they are as fine as its windows or
// finer.
func (c *cohorts) startRecents(newest uint64) {
	if c.shift > RecentShift {
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
	finer := RecentShift - c.shift
	r := recents{first: c.base >> finer, newest: c.newest() >> finer, until: c.levels.until}
	r.lows = make([]low, RecentPlace(r.newest, r.first)+1)
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
			r.lows[RecentPlace(r.newest, n)].add(&low{floor: x.floor, area: float32(x.area)})
		}
	}
	return r
}

// recentOf returns the counts of one site that go with recentsOf.
func (c *cohorts) recentOf(p *windows) []window {
	finer := RecentShift - c.shift
	newest := c.newest() >> finer
	list := make([]window, RecentPlace(newest, c.base>>finer)+1)
	for i := range int(c.last) + 1 {
		list[RecentPlace(newest, (c.base+uint64(i))>>finer)].add(&p.list[i])
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
	r.pass(live, begin+(r.newest+1)<<RecentShift)
	r.lows[0].area = float32(r.now)
	var list [MaxRecent]low
	n := RecentPlace(newest, r.first) + 1
	for i := range n {
		list[i].floor = math.MaxUint64
	}
	part, kept := ^uint64(0), uint64(0) // of the windows of the level below that a new one is made of
	for i, x := range RecentSpans(r.newest, r.first) {
		from, to := r.lows[i], &list[RecentPlace(newest, x.From)]
		size, live := RecentSize(newest, x.From), uint64(0)
		for p := parts; p != nil; p = p.next {
			live += p.recent[i].live
		}
		if age := newest - x.From; size == 1 && age >= recentYoung && r.newest-x.From < recentYoung {
			from.kept = live
		}
		if size > x.To-x.From { // it left a horizon
			if n := x.From &^ (size>>RecentStep - 1); n != part {
				part, kept = n, 0
			}
			kept += live
			from.young, from.kept = from.kept, kept
		}
		to.add(&from)
	}
	for i, x := range RecentSpans(newest, r.newest) { // since then nothing happened
		from := max(x.From, r.newest+1)
		if x.To > from {
			list[i].add(&low{floor: live, area: float32(live) * float32(min(x.To, newest)-min(from, newest)) * (1 << RecentShift)})
		}
	}
	r.lows = grown(r.lows, list[:n])
	r.newest, r.now, r.until = newest, 0, max(r.until, begin+newest<<RecentShift)
}

// floor notes what a window that leaves the horizon had at least.
func (r *Record) floor(x uint64) { r.Floor, r.Lowest = max(r.Floor, x), min(r.Lowest, x) }

// keep notes how much was kept of a window of some length that leaves the horizon of a level, in
// the record of the level below. After a pause it may leave both horizons at once.
func (r *Record) keep(x *low, level int, size uint64) {
	switch size {
	case 1 << (RecentStep * level):
		r.Kept, r.Young = max(r.Kept, x.kept), max(r.Young, x.young)
	case 1 << (RecentStep * (level - 1)):
		r.Young = max(r.Young, x.kept)
	}
}

// aged returns the counts of a site as they are when a window is the newest one.
func aged(from []window, first, was, newest uint64) []window {
	var list [MaxRecent]window
	for i, x := range RecentSpans(was, first) {
		list[RecentPlace(newest, x.From)].add(&from[i])
	}
	return grown(from, list[:RecentPlace(newest, first)+1])
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
	newest := minus(until, begin) >> RecentShift
	for _, x := range [...]*cohorts{c, o} {
		if x.levels.recents != nil {
			newest = max(newest, x.levels.recents.newest)
		}
	}
	for _, x := range [...]*cohorts{c, o} {
		x.recently(begin, begin+newest<<RecentShift)
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
		r.records[i].Add(y)
	}
}

// beginRecentsAt adds empty windows before the first one.
func (c *cohorts) beginRecentsAt(first uint64) {
	r := c.levels.recents
	n := RecentPlace(r.newest, first) + 1
	r.first = first
	r.lows = append(r.lows, make([]low, n-len(r.lows))...)
	for p := c.parts; p != nil; p = p.next {
		p.recent = append(p.recent, make([]window, n-len(p.recent))...)
	}
}

// note sets the records of what leaves a horizon when a window becomes the newest one.
func (r *recents) note(newest, live uint64) {
	for level := 0; ; level++ {
		from, to := RecentStart(r.newest, level), RecentStart(newest, level)
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
			if group != ^uint64(0) && group<<(RecentStep*level) > r.first { // nothing is known of before that
				record.floor(floor)
			}
		}
		for i, x := range RecentSpans(r.newest, r.first) {
			if x.From >= to {
				continue
			}
			if x.To <= from {
				break
			}
			if n := x.From >> (RecentStep * level); n != group {
				tell()
				group, floor = n, math.MaxUint64
			}
			floor = min(floor, r.lows[i].floor)
			if level > 0 {
				r.records[level-1].keep(&r.lows[i], level, x.To-x.From)
			}
		}
		tell()
		if (to-1)>>(RecentStep*level) > r.newest>>(RecentStep*level) {
			record.floor(live)
		}
	}
}
