// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Thresholds of the tests below. They are shares and counts, not times: a verdict does not depend
// on the speed of a program.
const (
	minSurvivors = 6    // seen, in
	minWindows   = 4    // windows of their own; or
	manySurvived = 12   // in
	fewWindows   = 3    //
	minShare     = 0.25 // of the time in which the process was seen to allocate
	chance       = 0.02 // of what is too unlikely to be one
	slower       = 0.6  // the second half of a run has so much less than the first: it slows down
	lumps        = 0.25 // share of windows at the beginning that may be warm-up before a leak
	goesOn       = 0.4  // of the growth so far, per time: with less at the end it may have ended
	waves        = 4    // times the level before a fall, or its time: less may be the next wave
)

// minTime is the one threshold that is a time. Whatever a program does in waves, such as collecting
// garbage, it often does every few seconds; the first wave looks like a leak.
const minTime = 5 * time.Second

// series is the behavior of a site in each window of its life.
type series struct {
	w      []ledger.Cohort
	window float64 // seconds
	passed float64 // share of the last window that has passed
	share  float64 // of the windows in the life of the process
	torn   bool    // everything was freed when the process ended
	life   life
	start  uint64 // of the first window, ns after Begin
	peak   float64
	// 0: the whole life; otherwise the recent past, of which level plus 1.
	horizon int
	record  ledger.Record // of windows before the horizon
	// Windows were seen to leave the next longer horizon: record.Kept is known.
	remembers bool
	// Share of each window in which the site was traced; nil: all the time.
	watched []float64
}

// newSeries excludes the time after a process's last allocation: a program that waits for its user
// proves nothing.
func newSeries(x *ledger.Site, l life) series {
	v := series{passed: 1, life: l, peak: float64(x.Peak)}
	if len(x.Cohorts) == 0 || l.end <= x.FirstWindow {
		return v
	}
	if end := x.FirstWindow + uint64(len(x.Cohorts))*x.Window; end < l.end { // nothing happened since
		extended := *x
		extended.AddCohorts(&ledger.Site{FirstWindow: (l.end - 1) / x.Window * x.Window, Window: x.Window, Cohorts: make([]ledger.Cohort, 1)})
		x = &extended
	}
	n := min(int((l.end-1-x.FirstWindow)/x.Window)+1, len(x.Cohorts))
	v.w, v.window, v.start = x.Cohorts[:n], float64(x.Window)/1e9, x.FirstWindow
	v.passed = min(float64(l.end-x.FirstWindow)/float64(x.Window)-float64(n-1), 1)
	if l.ended {
		v.tear()
	}
	if all := float64(l.end - l.begin); all > 0 {
		v.share = float64(x.Window) / all
	}
	return v
}

// tear excludes the end of a process that freed everything, as Python does at its exit.
func (v *series) tear() {
	n := len(v.w)
	live, most := uint64(0), uint64(0)
	for _, w := range v.w {
		live += w.LiveBytes
		most = max(most, w.Floor)
	}
	if n < 3 || live >= most/10 {
		return
	}
	v.torn, v.passed = true, 1
	v.w = v.w[:n-1]
	if n > 3 && v.w[n-2].Floor < v.w[n-3].Floor/2 {
		v.w = v.w[:n-2]
	}
}

// old returns how many windows are so old that their survivors are not just in use: all but the
// newest, and one less if the one before it kept an unusual share; all if nothing of the newest
// third was freed.
func (v *series) old() int {
	n := len(v.w)
	recent := v.w[n-min(n, max(n/3, 2)):]
	freed := false
	for _, w := range recent {
		freed = freed || w.LiveBytes < w.AllocBytes
	}
	if !freed {
		return n
	}
	var kept []float64
	for _, w := range v.w[:max(n-2, 0)] {
		if w.AllocBytes > 0 {
			kept = append(kept, survival(&w))
		}
	}
	if n >= 4 && survival(&v.w[n-2]) > 1.5*median(kept) {
		return n - 2
	}
	return n - 1
}

func survival(w *ledger.Cohort) float64 {
	if w.AllocBytes == 0 {
		return 0
	}
	return float64(w.LiveBytes) / float64(w.AllocBytes)
}

// part is the sum of some windows.
type part struct {
	seen, bytes, windows float64 // survivors; windows that have some
	least                float64 // fewest survivors of a window that has some
	first, last          int     // windows with survivors
}

func (v *series) sum(from, to int) part {
	p := part{first: -1, last: -1}
	for i := from; i < to; i++ {
		w := &v.w[i]
		if w.Seen == 0 {
			continue
		}
		p.seen += float64(w.Seen)
		p.bytes += float64(w.LiveBytes)
		p.windows++
		if p.first < 0 {
			p.first, p.least = i, float64(w.Seen)
		}
		p.least = min(p.least, float64(w.Seen))
		p.last = i
	}
	return p
}

// width returns the length of some windows; the last one may not be over.
func (v *series) width(from, to int) float64 {
	width := float64(to - from)
	if to == len(v.w) && to > from {
		width -= 1 - v.passed
	}
	return width
}

// traced is width without the time that was not traced.
func (v *series) traced(from, to int) float64 {
	if v.watched == nil {
		return v.width(from, to)
	}
	sum := 0.0
	for _, share := range v.watched[from:to] {
		sum += share
	}
	return sum
}

// sampling returns by how much live memory may seem to grow when objects are replaced by equal ones
// and the sample has more of the new ones: three standard errors of the difference. It is 0 if
// nothing is freed. Live memory is the mean of so many samples.
func (v *series) sampling(live, samples float64) float64 {
	seen, objects, bytes, freed := 0.0, 0.0, 0.0, false
	for i := range v.w {
		w := &v.w[i]
		seen += float64(w.Seen)
		objects += float64(w.LiveObjects)
		bytes += float64(w.LiveBytes)
		freed = freed || w.LiveBytes < w.AllocBytes
	}
	if seen == 0 || objects <= seen || !freed || bytes == 0 {
		return 0
	}
	return 3 * math.Sqrt(2*live*bytes*(1-seen/objects)/seen/samples)
}

// turnover returns how often all live memory is replaced within a window, at least 1.
func (v *series) turnover() float64 {
	var list []float64
	for i := range v.w {
		if w := &v.w[i]; w.Mean > 0 {
			list = append(list, float64(w.AllocBytes)/float64(w.Mean))
		}
	}
	return max(median(list), 1)
}

// means returns the mean of live bytes in each window.
func (v *series) means(from, to int) []float64 {
	list := make([]float64, 0, to-from)
	for _, w := range v.w[from:to] {
		list = append(list, float64(w.Mean))
	}
	return list
}

// clump returns how many survivors come at once: the variance of their number in a window divided
// by its mean, at least 1. So many are one event to tests that take events to be independent. The
// variance is that of successive differences (J. von Neumann: Distribution of the Ratio of the Mean
// Square Successive Difference to the Variance, 1941), so that a trend is no burst. Without an
// empty window between others there are no bursts.
func (v *series) clump(from, to int) float64 {
	sum, squares := 0.0, 0.0
	for i := from; i < to; i++ {
		sum += float64(v.w[i].Seen)
		if i > from {
			step := float64(v.w[i].Seen) - float64(v.w[i-1].Seen)
			squares += step * step
		}
	}
	if p := v.sum(from, to); p.last-p.first+1 <= int(p.windows) {
		return 1
	}
	return max(squares/2/float64(to-from-1)/(sum/float64(to-from)), 1)
}

func (v *series) floors(from, to int) []float64 {
	list := make([]float64, 0, to-from)
	for _, w := range v.w[from:to] {
		list = append(list, float64(w.Floor))
	}
	return list
}

// noise returns how much the floor varies from window to window.
func (v *series) noise() float64 {
	f := v.floors(0, len(v.w))
	var steps []float64
	for i := 1; i < len(f); i++ {
		steps = append(steps, f[i]-f[i-1])
	}
	middle := median(steps)
	for i := range steps {
		steps[i] = max(steps[i]-middle, middle-steps[i])
	}
	return 2 * median(steps)
}

// lastAlloc returns the index of the last window with an allocation.
func (v *series) lastAlloc() int {
	for i := len(v.w) - 1; i > 0; i-- {
		if w := &v.w[i]; w.AllocBytes > 0 || w.AllocObjects > 0 {
			return i
		}
	}
	return 0
}

// ns returns the length of some windows in ns.
func (v *series) ns(windows float64) uint64 {
	return uint64(max(windows, 0) * v.window * float64(time.Second))
}

// run is a range of windows in which live memory grew.
type run struct {
	from, to int
	rate     Rate // bytes per second
	hits     int  // windows in which it grew
	floor    bool // as the floor or the mean says
	why      string
	needs    float64 // seconds until it can be decided, if not yet; 0: unknown
}

// life is the time in which a process was seen to allocate, in ns after Begin.
type life struct {
	begin, end uint64
	ended      bool // the process has ended
}
