// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	windowPoints = 256  // of a Window, at most
	windowSites  = 500  // largest sites of a snapshot that a Window follows
	windowRows   = 512  // processes and GPUs of theirs
	windowGap    = 40e9 // ns without a snapshot, after which a Window begins anew
)

// Window is a timeline of the latest moments of a session without an end. Snapshots come at any
// pace; of those that are closer than its step only the latest stays. The last moment is as of
// then. At those before, each process has what it had when it had most since the moment before, as
// far as snapshots have ledger.Snapshot.Highest.
//
// Its largest sites have bytes over time. The rest is known in the sums of rows.
type Window struct {
	b    *builder
	step uint64 // ns
	n    int    // moments
	last *ledger.Snapshot
	high *ledger.Snapshot // the highest since the moment before the last
	more int              // rows that there was no room for
}

// NewWindow returns a Window over about so many ns.
func NewWindow(length uint64) *Window {
	return &Window{step: length / (windowPoints * 3 / 4)} // moments lie closer than a step, and some are forgotten at a time
}

// Add takes a snapshot, which is later than all before. After windowGap without any, the window
// begins anew, since nobody knows what happened meanwhile.
func (w *Window) Add(s *ledger.Snapshot) {
	if w.last != nil && (s.End < w.last.End || s.End-w.last.End > windowGap || s.Begin != w.last.Begin) {
		*w = Window{step: w.step}
	}
	if w.b == nil {
		w.b = newBuilder()
		w.b.most = windowSites
	}
	times := &w.b.t.Times
	high := s.AtHighest()
	switch {
	case w.n >= 2 && s.End-(*times)[w.n-2] < w.step: // the last moment was preliminary
		high = high.Above(w.high)
		w.dropLast()
	case w.n > 0:
		at := (*times)[w.n-1]
		w.dropLast()
		w.look(at, w.high)
	}
	if w.n == windowPoints {
		w.forget(windowPoints / 8)
	}
	w.look(s.End, s)
	w.last, w.high = s, high
	w.prune()
}

func (w *Window) look(at uint64, s *ledger.Snapshot) {
	w.b.look(w.n, windowPoints, at, s)
	w.n++
}

func (w *Window) dropLast() {
	w.n--
	w.b.t.Times = w.b.t.Times[:w.n]
	w.b.clear(w.n)
}

// Timeline returns a copy of the window, which ends with the latest snapshot; nil if rows are
// missing in it. It marks errors, which are out-of-memory events.
func (w *Window) Timeline(errors []ledger.Event) *Timeline {
	if w.n == 0 || w.more > 0 {
		return nil
	}
	from := w.b.t
	c := &builder{last: w.b.last, t: &Timeline{
		Times: slices.Clone(from.Times), Processes: slices.Clone(from.Processes), GPUs: from.GPUs, Rows: slices.Clone(from.Rows), Sites: slices.Clone(from.Sites),
	}}
	c.change(func(list []uint64) []uint64 { return slices.Clone(list[:w.n]) })
	o := &observer{}
	for i := range errors {
		o.ooms = append(o.ooms, markOf(&errors[i], OutOfMemory))
	}
	c.finish(o)
	return c.t
}

// forget drops the first moments.
func (w *Window) forget(n int) {
	t := w.b.t
	t.Times = slices.Delete(t.Times, 0, n)
	w.n -= n
	w.b.change(func(list []uint64) []uint64 { return shifted(list, n) })
}

// prune drops what has ended and was nowhere within the window, and the smallest rows and sites
// beyond the limits.
func (w *Window) prune() {
	b, t := w.b, w.b.t
	current := map[ledger.ProcessID]bool{}
	for i := range w.last.Processes {
		p := &w.last.Processes[i]
		current[p.ID()] = true
	}
	if len(t.Processes) <= len(current) && len(t.Rows) <= windowRows && len(t.Sites) <= 2*windowSites {
		return
	}
	used := make([]bool, len(t.Processes))
	for i := range t.Processes {
		used[i] = current[t.Processes[i].ID()]
	}
	kept := t.Rows[:0]
	w.more = 0
	for _, r := range t.Rows {
		switch {
		case !used[r.Process] && r.empty():
		case len(kept) == windowRows:
			w.more++
		default:
			kept = append(kept, r)
			used[r.Process] = true
		}
	}
	clear(t.Rows[len(kept):])
	t.Rows = kept
	t.Sites = slices.DeleteFunc(t.Sites, func(x Site) bool { return !used[x.Process] || x.LiveBytes == 0 && empty(x.Live) })
	if len(t.Sites) > 2*windowSites {
		slices.SortStableFunc(t.Sites, func(x, y Site) int { return cmp.Compare(slices.Max(y.Live), slices.Max(x.Live)) })
		clear(t.Sites[windowSites:])
		t.Sites = t.Sites[:windowSites]
	}
	b.renumber(used)
}

// renumber drops the processes that are not used, and finds the indices anew.
func (b *builder) renumber(used []bool) {
	t := b.t
	place := make([]int, len(used))
	kept := t.Processes[:0]
	for i, p := range t.Processes {
		place[i] = len(kept)
		if used[i] {
			kept = append(kept, p)
		}
	}
	clear(t.Processes[len(kept):])
	t.Processes = kept
	for i, n := range b.last {
		b.last[i] = place[n]
	}
	b.rows, b.first, b.sites, b.processes = map[rowKey]int{}, map[int]int{}, map[SiteKey]int{}, map[ledger.ProcessID]int{}
	for i := range t.Processes {
		b.processes[t.Processes[i].ID()] = i
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		r.Process = place[r.Process]
		key := rowKey{r.Process, r.UUID, r.Device}
		if r.UUID != "" {
			key.device = 0
		}
		b.rows[key] = i
		if _, ok := b.first[r.Process]; !ok {
			b.first[r.Process] = i
		}
	}
	for i := range t.Sites {
		x := &t.Sites[i]
		x.Process = place[x.Process]
		b.sites[x.Key()] = i
	}
}

// shifted moves a list to the front, in place.
func shifted[T int64 | uint64](list []T, n int) []T {
	copy(list, list[n:])
	clear(list[len(list)-n:])
	return list
}
