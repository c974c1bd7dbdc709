// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// growthSpan is the longest time, in ns, over which growth is measured: what is of interest after a
// month is the last hour.
const growthSpan = 3600e9

// GrowthSpan returns over how long Site.Growth of a process is, in ns: the later half of the
// session, or of the process if it began in that, but at most an hour.
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

// grow sets the growth of a site in the later half of a time, the end of which is now, at most in
// the last hour. It is the difference of live bytes where low-water marks changed by at least half
// of that, and otherwise that of low-water marks: what a step allocates and frees does not count.
// live returns the live bytes at a time; it does not know the last hour of a long session.
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
		x.floors, x.begin = s.Recent.Lows()
	}
	last := x.begin(len(x.floors) - 1)
	if now > last+span { // nothing happened since
		return 0
	}
	return int64(x.floors[len(x.floors)-1] - x.at(last-min(span, last)))
}

// Since returns the time from which on figures show the past of a process (Site.History and
// Site.Growth): the begin of the session, or that of the process if it began in the later half. A
// process that begins after a month is shown in as much detail as one that begins at once.
func (s *Snapshot) Since(process int) uint64 {
	return sinceOf(s.Begin, s.Processes[process].Begin, s.End)
}

func sinceOf(session, process, end uint64) uint64 {
	if process > session && process <= end && process-session > (end-session)/2 {
		return process
	}
	return session
}

// AddCohorts adds the cohorts and the peak of another site to a site; windows become longer if
// necessary. It changes no list in place.
func (s *Site) AddCohorts(part *Site) {
	s.Peak += part.Peak
	s.addRecent(part)
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

// AddPresumed adds what is presumed to live of another site of the process. It changes none in
// place.
func (s *Site) AddPresumed(part *Site) {
	switch x := part.Presumed; {
	case x == nil:
	case s.Presumed == nil:
		s.Presumed = x
	default:
		sum := *s.Presumed
		sum.LiveBytes += x.LiveBytes
		sum.AddCohorts(x)
		s.Presumed = &sum
	}
}

// addTo adds the cohorts to windows of the same or a greater length. Before its first window a site
// has nothing, after its last one it keeps what it has.
func (s *Site) addTo(sum []Cohort, first, window uint64) {
	floors := make([]uint64, len(sum))
	highs := make([]uint64, len(sum))
	seen := make([]bool, len(sum))
	areas := make([]float64, len(sum))
	live, k := uint64(0), uint64(0)
	for i := range s.Cohorts {
		w := &s.Cohorts[i]
		live += w.LiveBytes
		k = (s.FirstWindow + s.Window*uint64(i) - first) / window
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
		areas[k] += float64(w.Mean) * float64(s.Window)
	}
	if n := len(s.Cohorts); n > 0 { // the rest of the last window
		over := (k+1)*window + first - s.FirstWindow - s.Window*uint64(n)
		areas[k] += float64(live) * float64(over)
	}
	for k++; k < uint64(len(sum)); k++ {
		floors[k], areas[k] = live, float64(live)*float64(window)
	}
	for k := range sum {
		sum[k].Floor += floors[k]
		sum[k].High += highs[k]
		sum[k].Mean += uint64(areas[k] / float64(window))
	}
}

// addRecent adds the recent past of another site of the process. It changes none in place.
func (s *Site) addRecent(part *Site) {
	switch {
	case part.Recent == nil:
		return
	case s.Recent == nil:
		s.Recent = part.Recent
		return
	}
	a, b := s.Recent, part.Recent
	if len(a.Windows) < len(b.Windows) {
		a, b = b, a
	}
	sum := &Recent{Newest: a.Newest, Windows: slices.Clone(a.Windows), Records: slices.Clone(a.Records)}
	for i := range b.Windows {
		x, y := &sum.Windows[i], &b.Windows[i]
		x.AllocBytes += y.AllocBytes
		x.LiveBytes += y.LiveBytes
		x.Floor += y.Floor
		x.Mean += y.Mean
		x.LiveObjects += min(y.LiveObjects, math.MaxUint32-x.LiveObjects)
		x.Seen += min(y.Seen, math.MaxUint32-x.Seen)
	}
	for i, y := range b.Records {
		if i == len(sum.Records) {
			sum.Records = append(sum.Records, Record{Lowest: math.MaxUint64})
		}
		sum.Records[i].Add(y)
	}
	s.Recent = sum
}

// What package growth keeps of a site's past is part of a Site.
type (
	Cohort       = growth.Cohort
	Recent       = growth.Recent
	RecentWindow = growth.RecentWindow
	Record       = growth.Record
	Horizon      = growth.Horizon
)

const (
	CohortLen   = growth.CohortLen   // most windows of Site.Cohorts
	HistoryLen  = growth.HistoryLen  // most values of Site.History
	HorizonStep = growth.HorizonStep // how many windows of a level of horizons one of the next level has
)

// setTrack sets what the past of a site shows; known is false before its first allocation.
func (s *Site) setTrack(v growth.View, known bool) {
	if known {
		s.Peak, s.Window, s.FirstWindow, s.Cohorts, s.Recent = v.Peak, v.Window, v.FirstWindow, v.Cohorts, v.Recent
	}
}

// fillTensors sets what the past of one size class of the sample shows, weighted: its cohorts add
// up to its part. Its share of floors and peak is its share of the live bytes of all classes or, if
// there are none, of what they allocated.
func (s *site) fillTensors(begin, time, recent uint64, out *Site, part *share) {
	out.setTrack(s.track.View(begin, time, recent, make([]Cohort, CohortLen)))
	to := part.live.bytes
	from, allocated := s.track.Whole()
	if from == 0 {
		to, from = part.freed.bytes, allocated
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
