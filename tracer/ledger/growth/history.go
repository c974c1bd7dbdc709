// SPDX-License-Identifier: Apache-2.0

package growth

// HistoryLen is the most values of Site.History.
const HistoryLen = 32

const (
	MaxChanges = 2 * HistoryLen
	firstShift = 24 // finest step: 2^24 ns, 17 ms
)

// History keeps the live bytes of one site over time: one value for each step in which they
// changed. It doubles the step when it is full, so a quiet site takes little memory, and none takes
// more than 1 KiB.
type History struct {
	changes []change
	shift   uint8 // step is 2^shift ns
}

// change is the live bytes of the site from time on, which is ns after Begin.
type change struct{ time, live uint64 }

// Record notes the live bytes at a time.
func (h *History) Record(begin, now, live uint64) {
	t := uint64(0)
	if now > begin {
		t = now - begin
	}
	n := len(h.changes)
	if n == 0 {
		h.shift = firstShift
		h.changes = append(h.changes, change{t, live})
		return
	}
	last := &h.changes[n-1]
	t = max(t, last.time)
	if t>>h.shift == last.time>>h.shift {
		*last = change{t, live}
		return
	}
	if n == MaxChanges {
		h.coarsen()
	}
	h.changes = append(h.changes, change{t, live})
}

// add adds the live bytes of another site.
func (h *History) add(o *History) {
	if len(h.changes) == 0 || len(o.changes) == 0 {
		h.changes, h.shift = append(h.changes, o.changes...), max(h.shift, o.shift)
		return
	}
	sum := make([]change, 0, len(h.changes)+len(o.changes))
	var live [2]uint64
	for lists := [2][]change{h.changes, o.changes}; len(lists[0])+len(lists[1]) > 0; {
		k := 0
		if len(lists[0]) == 0 || len(lists[1]) > 0 && lists[1][0].time < lists[0][0].time {
			k = 1
		}
		live[k] = lists[k][0].live
		sum = append(sum, change{lists[k][0].time, live[0] + live[1]})
		lists[k] = lists[k][1:]
	}
	h.changes, h.shift = sum, max(h.shift, o.shift)
	if h.join(); len(h.changes) > MaxChanges {
		h.coarsen()
	}
	h.changes = append(make([]change, 0, len(h.changes)), h.changes...)
}

// coarsen doubles the step until half of the places are free.
func (h *History) coarsen() {
	for len(h.changes) > MaxChanges/2 {
		h.shift++
		h.join()
	}
}

// join leaves one value for each step.
func (h *History) join() {
	kept := h.changes[:0]
	for _, c := range h.changes {
		if n := len(kept); n > 0 && c.time>>h.shift == kept[n-1].time>>h.shift {
			kept[n-1] = c
		} else {
			kept = append(kept, c)
		}
	}
	h.changes = kept
}

// Fill sets out to the live bytes at even steps between two times of the session, the last of which
// is its end.
func (h *History) Fill(out []uint64, from, session uint64) {
	step := (session - from) / uint64(len(out))
	i, live := 0, uint64(0)
	for k := range out {
		t := from + step*uint64(k+1)
		if k == len(out)-1 {
			t = ^uint64(0)
		}
		for i < len(h.changes) && h.changes[i].time <= t {
			live = h.changes[i].live
			i++
		}
		out[k] = live
	}
}

// At returns the live bytes t ns after Begin.
func (h *History) At(t uint64) uint64 {
	live := uint64(0)
	for _, c := range h.changes {
		if c.time > t {
			break
		}
		live = c.live
	}
	return live
}

// Shorten makes the step so long that a history of span ns has at most so many values.
func (h *History) Shorten(span, values uint64) {
	for span>>h.shift >= values {
		h.shift++
	}
	h.join()
}
