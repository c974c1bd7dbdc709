// SPDX-License-Identifier: Apache-2.0

package ledger

// growthSpan is the longest time, in ns, over which growth is measured: what is of interest after a month
// is the last hour.
const growthSpan = 3600e9

// GrowthSpan returns over how long Site.Growth of a process is, in ns: the later half of the session, or
// of the process if it began in that, but at most an hour.
func (s *Snapshot) GrowthSpan(process int) uint64 {
	return min((s.End-s.Since(process))/2, growthSpan)
}

// SessionGrowthSpan is GrowthSpan of a process that began before the later half of the session.
func (s *Snapshot) SessionGrowthSpan() uint64 { return min((s.End-s.Begin)/2, growthSpan) }

// lows are the low-water marks of a site: what it had at least in windows of time, oldest first.
type lows struct {
	floors []uint64
	begin  func(i int) uint64 // of a window, ns after Begin
}

// at returns the low-water mark at a time, between those of windows that begin before and after it.
func (x *lows) at(time uint64) uint64 {
	n := len(x.floors)
	i := 0
	for i < n && x.begin(i) <= time {
		i++
	}
	switch {
	case i == 0:
		return 0 // the site had nothing
	case i == n:
		return x.floors[n-1]
	}
	from, to := x.begin(i-1), x.begin(i)
	share := float64(time-from) / float64(to-from)
	return uint64(float64(x.floors[i-1])*(1-share) + float64(x.floors[i])*share)
}

// grow sets the growth of a site in the later half of a time, the end of which is now, at most in the last
// hour. It is the difference of live bytes where low-water marks changed by at least half of that, and
// otherwise that of low-water marks: what a step allocates and frees does not count. live returns the live
// bytes at a time; it does not know the last hour of a long session.
func (s *Site) grow(from, now uint64, live func(time uint64) uint64) {
	span := min((now-from)/2, growthSpan)
	low := s.lowGrowth(span, now)
	s.Growth = low
	if span < growthSpan {
		exact := int64(s.LiveBytes - live(from+(now-from)/2))
		confirmed := max(low, -low)
		if (low < 0) == (exact < 0) {
			confirmed *= 2 // windows are long
		}
		if max(exact, -exact) <= confirmed {
			s.Growth = exact
		}
	}
}

// lowGrowth returns by how much the low-water mark rose.
func (s *Site) lowGrowth(span, now uint64) int64 {
	n := len(s.Cohorts)
	if n == 0 {
		return 0
	}
	x := lows{make([]uint64, n), func(i int) uint64 { return s.FirstWindow + uint64(i)*s.Window }}
	for i := range s.Cohorts {
		x.floors[i] = s.Cohorts[i].Floor
	}
	if s.Recent != nil && s.Window > span/4 {
		x.floors, x.begin = s.Recent.lows()
	}
	last := x.begin(len(x.floors) - 1)
	if now > last+span { // nothing happened since
		return 0
	}
	return int64(x.floors[len(x.floors)-1] - x.at(last-min(span, last)))
}

// lows returns the low-water marks of the recent past.
func (r *Recent) lows() (floors []uint64, begin func(i int) uint64) {
	n := len(r.Windows)
	floors, starts := make([]uint64, n), make([]uint64, n)
	for i, x := range recentSpans(r.Newest, r.first()) {
		floors[n-1-i], starts[n-1-i] = r.Windows[i].Floor, x.from<<recentShift
	}
	return floors, func(i int) uint64 { return starts[i] }
}
