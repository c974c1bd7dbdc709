// SPDX-License-Identifier: Apache-2.0

package ledger

// usedMarks has what a GPU used at readings at even steps of time. When there are too many, the step
// doubles.
type usedMarks struct {
	list []usedMark
	step uint64 // ns
}

type usedMark struct{ time, used uint64 }

const maxMarks = 32

// markUsed notes what all GPUs use at the time of a reading.
func (l *Ledger) markUsed(time uint64) {
	for i := range l.gpus {
		g := &l.gpus[i]
		m := l.used[g.UUID]
		if m == nil {
			if len(l.used) >= maxDevices {
				continue
			}
			m = &usedMarks{step: 1e9}
			l.used[g.UUID] = m
		}
		n := len(m.list)
		if n > 0 && minus(time, m.list[n-1].time) < m.step {
			continue
		}
		if n == maxMarks {
			for k := range maxMarks / 2 {
				m.list[k] = m.list[2*k+1]
			}
			m.list, m.step = m.list[:maxMarks/2], 2*m.step
		}
		m.list = append(m.list, usedMark{time, g.Used})
	}
}

// grown sets what each GPU used earlier: at about half of the time from the first reading to the
// latest.
func (l *Ledger) grown(list []GPU) {
	for i := range list {
		m := l.used[list[i].UUID]
		if m == nil || len(m.list) < 3 {
			continue
		}
		n := len(m.list)
		first, last := m.list[0].time, m.list[n-1].time
		k := 0
		for m.list[k].time < first+(last-first)/2 {
			k++
		}
		list[i].Time, list[i].EarlierTime, list[i].EarlierUsed = l.lastUsage, m.list[k].time, m.list[k].used
	}
}
