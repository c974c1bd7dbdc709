// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
)

// gpuList has the GPUs of the session, and what they used earlier.
type gpuList struct {
	list []GPU
	used map[string]*usedMarks // by UUID
	read uint64                // time of the latest reading
}

// usedMarks has what a GPU used at readings, the older the fewer.
type usedMarks struct {
	list []usedMark
	step uint64 // least time between them, ns
}

type usedMark struct{ time, used uint64 }

const maxMarks = 32

// mark notes what all GPUs use at the time of a reading.
func (x *gpuList) mark(time uint64) {
	for i := range x.list {
		g := &x.list[i]
		m := x.used[g.UUID]
		if m == nil {
			if len(x.used) >= maxDevices {
				continue
			}
			m = &usedMarks{step: 1e9}
			x.used[g.UUID] = m
		}
		n := len(m.list)
		if n > 0 && minus(time, m.list[n-1].time) < m.step {
			continue
		}
		if n == maxMarks {
			m.thin(time)
		}
		m.list = append(m.list, usedMark{time, g.Used})
	}
}

// thin removes the mark that is nearest to its neighbors, compared with its age.
func (m *usedMarks) thin(now uint64) {
	best, least := 1, math.Inf(1)
	for i := 1; i < len(m.list)-1; i++ {
		if gap := float64(m.list[i+1].time-m.list[i-1].time) / float64(max(minus(now, m.list[i].time), 1)); gap < least {
			best, least = i, gap
		}
	}
	m.list = slices.Delete(m.list, best, best+1)
}

// earlier sets what each GPU used earlier: at about half of the time from the first reading to the
// latest, at most an hour before.
func (x *gpuList) earlier(list []GPU) {
	for i := range list {
		m := x.used[list[i].UUID]
		if m == nil || len(m.list) < 3 {
			continue
		}
		n := len(m.list)
		first, last := m.list[0].time, m.list[n-1].time
		k := 0
		for m.list[k].time < max(first+(last-first)/2, minus(last, growthSpan)) {
			k++
		}
		list[i].Time, list[i].EarlierTime, list[i].EarlierUsed = x.read, m.list[k].time, m.list[k].used
	}
}

// forget drops what GPUs used that NVML does not list any more.
func (x *gpuList) forget() {
	for uuid := range x.used {
		if !slices.ContainsFunc(x.list, func(g GPU) bool { return g.UUID == uuid }) {
			delete(x.used, uuid)
		}
	}
}
