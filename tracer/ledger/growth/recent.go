// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math"
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
const HorizonStep = 1 << RecentStep

// Horizon is what a site did in the last 9 to 12 windows of one length.
type Horizon struct {
	Begin       uint64 // ns after Begin of the session; Cohorts may begin later
	Window      uint64 // length of each of Cohorts, ns
	FirstWindow uint64 // begin of the first of Cohorts, ns after Begin
	Cohorts     []Cohort
	Record      Record // of windows of that length before
}

// Horizon returns the horizon of a level, from 0 on: the higher, the longer. It returns false if
// that is longer than the session. High is set in windows whose Floor is higher than ever.
func (r *Recent) Horizon(level int) (Horizon, bool) {
	if r == nil || len(r.Windows) == 0 || RecentStart(r.Newest, level) == 0 {
		return Horizon{}, false
	}
	shift := RecentStep * level
	start, first := RecentStart(r.Newest, level), r.first()
	from := max(start, first>>shift<<shift)
	h := Horizon{Begin: start << RecentShift, Window: 1 << (RecentShift + shift), FirstWindow: from << RecentShift, Cohorts: make([]Cohort, (r.Newest-from)>>shift+1)}
	for i := range h.Cohorts {
		h.Cohorts[i].Floor = math.MaxUint64
	}
	areas := make([]float64, len(h.Cohorts))
	for i, x := range RecentSpans(r.Newest, first) {
		if x.From < from {
			break
		}
		k, w := (x.From-from)>>shift, &r.Windows[i]
		c := &h.Cohorts[k]
		c.AllocBytes += w.AllocBytes
		c.LiveBytes += w.LiveBytes
		c.LiveObjects += uint64(w.LiveObjects)
		c.AllocObjects += uint64(w.LiveObjects)
		c.Seen += uint64(w.Seen)
		c.Floor = min(c.Floor, w.Floor)
		areas[k] += float64(w.Mean) * float64(x.To-x.From)
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
	for i, x := range RecentSpans(r.Newest, 0) {
		if i == len(r.Windows)-1 {
			return x.From
		}
	}
	return 0
}

// Add adds the record of another site: that of the sum is at most as high, and varies at most as
// much.
func (r *Record) Add(y Record) {
	if r.Lowest == math.MaxUint64 || y.Lowest == math.MaxUint64 {
		r.Lowest = min(r.Lowest, y.Lowest)
	} else {
		r.Lowest += y.Lowest
	}
	r.Floor, r.Kept, r.Young = r.Floor+y.Floor, r.Kept+y.Kept, r.Young+y.Young
}

// Varied returns by how much floors differed.
func (r *Record) Varied() uint64 { return r.Floor - min(r.Lowest, r.Floor) }

// Lows returns the low-water marks of the recent past.
func (r *Recent) Lows() (floors []uint64, begin func(i int) uint64) {
	n := len(r.Windows)
	floors, starts := make([]uint64, n), make([]uint64, n)
	for i, x := range RecentSpans(r.Newest, r.first()) {
		floors[n-1-i], starts[n-1-i] = r.Windows[i].Floor, x.From<<RecentShift
	}
	return floors, func(i int) uint64 { return starts[i] }
}
