// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of the timeline in a page. Beyond them moments are dropped, but never peaks, errors or the
// end.
const (
	maxChanges = 600_000 // of all sites together: some 2 bytes each in the file, 6 where nothing repeats
	maxPoints  = 100_000 // of all rows together
	maxMarks   = 1000
	maxKept    = 200
)

// overTime follows entries over a timeline.
type overTime struct {
	b         *builder
	tl        *timeline.Timeline
	processes []int                               // of the timeline, in the page
	peak      int                                 // index into tl.Times; -1: none
	points    []int                               // what the page has of tl.Times
	grid      []int                               // and of those, where it has all entries
	sites     map[timeline.SiteKey]*timeline.Site // by process of the page
	rows      map[[2]int]int                      // row of a process and GPU of the page
	gpus      []int                               // of the rows
	sums      [][]int64                           // of what sites have, by row and plane
}

func newOverTime(b *builder, tl *timeline.Timeline) *overTime {
	o := &overTime{b: b, tl: tl, sites: map[timeline.SiteKey]*timeline.Site{}, rows: map[[2]int]int{}}
	for i := range tl.Processes {
		p := &tl.Processes[i]
		at := slices.IndexFunc(b.s.Processes, func(q ledger.Process) bool { return q.PID == p.PID && q.Begin == p.Begin })
		if at < 0 {
			at = b.addProcess(p)
		}
		o.processes = append(o.processes, at)
	}
	for i := range tl.Sites {
		x := &tl.Sites[i]
		key := x.Key()
		key.Process = o.processes[x.Process]
		o.sites[key] = x
	}
	for i := range tl.Rows {
		r := &tl.Rows[i]
		uuid := r.UUID
		if uuid == "" {
			uuid = deviceUUID(&tl.Processes[r.Process], r.Device)
		}
		gpu := b.gpu(uuid, r.Device)
		o.gpus = append(o.gpus, gpu)
		for _, key := range [][2]int{{o.processes[r.Process], gpu}, {o.processes[r.Process], host}} {
			if _, ok := o.rows[key]; !ok {
				o.rows[key] = i
			}
		}
	}
	o.peak = -1
	if at, ok := report.PeakTime(b.s); ok {
		o.peak, _ = slices.BinarySearch(tl.Times, at)
		o.peak = min(o.peak, len(tl.Times)-1)
	}
	o.pickMoments()
	o.sums = make([][]int64, len(tl.Rows)*len(planes))
	return o
}

// pickMoments drops moments until the page is small.
func (o *overTime) pickMoments() {
	n := len(o.tl.Times)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	keep := o.moments()
	step := 1
	for o.points = all; len(o.points)*len(o.tl.Rows) > maxPoints && len(o.points) > len(keep)+2; step *= 2 {
		o.points = thinned(all, 2*step, keep)
	}
	for o.grid = o.points; o.changes(o.grid) > maxChanges && len(o.grid) > len(keep)+2; step *= 2 {
		o.grid = thinned(o.points, 2*step, keep)
	}
}

// thinned keeps one of every step moments, the first, the last, and those of keep.
func thinned(list []int, step int, keep map[int]bool) []int {
	var out []int
	for i, at := range list {
		if i%step == 0 || i == len(list)-1 || keep[at] {
			out = append(out, at)
		}
	}
	return out
}

// moments returns the interesting ones: peaks of all memory, of each process, GPU and row, and
// out-of-memory errors.
func (o *overTime) moments() map[int]bool {
	keep := map[int]bool{}
	peak := func(of func(row int) bool) {
		at, best := 0, int64(-1)
		for t := range o.tl.Times {
			sum := int64(0)
			for i := range o.tl.Rows {
				if of(i) {
					sum += total(&o.tl.Rows[i], t)
				}
			}
			if sum > best {
				at, best = t, sum
			}
		}
		if len(keep) < maxKept {
			keep[at] = true
		}
	}
	if o.peak >= 0 {
		keep[o.peak] = true
	}
	peak(func(int) bool { return true })
	if len(o.tl.Rows) > 1 && len(o.tl.Rows) <= maxKept {
		for i := range o.tl.Rows {
			peak(func(row int) bool { return row == i })
			peak(func(row int) bool { return o.tl.Rows[row].Process == o.tl.Rows[i].Process })
			peak(func(row int) bool { return o.gpus[row] == o.gpus[i] })
		}
	}
	for i := range o.tl.Marks {
		m := &o.tl.Marks[i]
		if m.Kind == timeline.OutOfMemory && len(keep) < 2*maxKept {
			at, _ := slices.BinarySearch(o.tl.Times, m.Time)
			keep[min(at, len(o.tl.Times)-1)] = true
		}
	}
	return keep
}

// total returns all memory of a row at a moment.
func total(r *timeline.Row, t int) int64 {
	return int64(r.Unexplained[t] + r.Tensors[t] + r.Cached[t] + r.Driver[t] + r.Rounding[t] + r.Before[t])
}

// changes counts the changes of all sites on a grid.
func (o *overTime) changes(grid []int) int {
	n := 0
	for i := range o.tl.Sites {
		before := uint64(0)
		for _, t := range grid {
			if v := o.tl.Sites[i].Live[t]; v != before {
				before = v
				n++
			}
		}
	}
	return n
}

// series encodes changes from moment to moment: steps since the last change, and by how much.
func (o *overTime) series(at func(k int) int64) []int64 {
	out := []int64{}
	last, before := 0, int64(0)
	for k := range o.grid {
		if v := at(k); v != before {
			out = append(out, int64(k-last), v-before)
			last, before = k, v
		}
	}
	return out
}

// site returns the series of a site, which ends with the ledger's figure; nil if the timeline does
// not have it. e has its process, GPU and plane.
func (o *overTime) site(h *report.Holding, e *entry) []int64 {
	x := h.Site
	key := timeline.KeyOf(x)
	key.Process = e.process
	known := o.sites[key]
	if known == nil || x.Kind == ledger.Imported || h.Plane == report.PlaneAsleep {
		return nil
	}
	var sum []int64
	if row, ok := o.rows[[2]int{e.process, e.gpu}]; ok && (e.gpu != host || h.Plane == report.PlaneHost) {
		sum = o.sumOf(row, e.plane)
	}
	return o.series(func(k int) int64 {
		v := int64(known.Live[o.grid[k]])
		if k == len(o.grid)-1 {
			v = e.live
		}
		if sum != nil {
			sum[k] += v
		}
		return v
	})
}

func (o *overTime) sumOf(row, plane int) []int64 {
	at := &o.sums[row*len(planes)+plane]
	if *at == nil {
		*at = make([]int64, len(o.grid))
	}
	return *at
}

// column returns what a row has in a plane at a moment.
func column(r *timeline.Row, plane string) func(t int) int64 {
	unsigned := func(list []uint64) func(int) int64 {
		return func(t int) int64 {
			if list == nil {
				return 0
			}
			return int64(list[t])
		}
	}
	switch plane {
	case report.PlaneTensor:
		return unsigned(r.Tensors)
	case report.PlaneCache:
		return unsigned(r.Cached)
	case report.PlaneDriver:
		return unsigned(r.Driver)
	case report.PlaneRounding:
		return unsigned(r.Rounding)
	case report.PlaneBefore:
		return unsigned(r.Before)
	case report.PlaneHost:
		return unsigned(r.Host)
	case report.PlaneManaged:
		return unsigned(r.Managed)
	case report.PlaneSystem:
		return unsigned(r.System)
	case report.PlaneAsleep:
		return unsigned(r.Asleep)
	case report.PlaneImported:
		return unsigned(nil)
	}
	return unsigned(r.Unexplained)
}

var restMarks = map[string]string{
	report.PlaneTensor: report.MarkNoSample, report.PlaneCache: report.MarkCache, report.PlaneBefore: markBefore, report.PlaneUnexplained: report.MarkUnexplained,
	report.PlaneRounding: report.MarkRounding, report.PlaneDriver: markNoSite, report.PlaneHost: markNoSite, report.PlaneManaged: markNoSite, report.PlaneSystem: report.MarkSystem, report.PlaneAsleep: report.MarkAsleep,
}

// addRests adds what rows have beyond their sites, so that the series of all entries add up to the
// rows at every moment. At the end, Holdings has it in more detail; live bytes add up without the
// rests.
func (o *overTime) addRests() {
	b := o.b
	for i := range o.tl.Rows {
		r := &o.tl.Rows[i]
		for plane, name := range planes {
			of := column(r, name)
			if !slices.ContainsFunc(o.points, func(t int) bool { return of(t) != 0 }) {
				continue
			}
			sum := o.sumOf(i, plane)
			e := entry{plane: plane, process: o.processes[r.Process], gpu: o.gpus[i], device: b.text(format.Device(r.Device, ledger.Device)), age: -1}
			if name == report.PlaneHost {
				e.gpu, e.device = host, b.text(format.Device(r.Device, ledger.Pinned))
			}
			e.series = o.series(func(k int) int64 {
				return of(o.grid[k]) - sum[k]
			})
			if len(e.series) == 0 {
				continue
			}
			e.head = b.mark(restMarks[name])
			e.node = b.tree.leaf([]int{e.head})
			b.entries = append(b.entries, e)
		}
	}
}
