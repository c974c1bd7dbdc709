// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot copies the books as of now (ns of CLOCK_MONOTONIC; wall is the same
// moment on the clock on the wall). The time it takes grows with the sites, not with
// the live allocations. The ledger keeps no reference to the copy.
func (l *Ledger) Snapshot(now uint64, wall time.Time) *Snapshot {
	s := &Snapshot{
		Host:     l.options.Host,
		Begin:    l.options.Begin,
		End:      max(now, l.options.Begin),
		Wall:     wall,
		GPUs:     slices.Clone(l.gpus),
		Stats:    l.stats,
		Warnings: slices.Clone(l.warnings),
	}
	s.Stats.Truncated = copyCounts(l.stats.Truncated)
	v := view{l: l, s: s, device: make([]int32, len(l.procs)), index: make([]int, len(l.procs))}
	v.processes()
	v.sites()
	v.failures()
	return s
}

// view is a snapshot in the making.
type view struct {
	l      *Ledger
	s      *Snapshot
	device []int32 // by process number: what UnknownDevice stands for
	index  []int   // by process number: index in Snapshot.Processes
}

func (v *view) processes() {
	order := make([]int, len(v.l.procs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := &v.l.procs[a], &v.l.procs[b]
		return cmp.Or(cmp.Compare(p.PID, q.PID), cmp.Compare(p.Begin, q.Begin), cmp.Compare(a, b))
	})
	for index, n := range order {
		p := &v.l.procs[n]
		v.index[n] = index
		v.device[n], _ = p.onlyGPU()
		c := p.Process
		c.Totals, c.Devices = v.totals(p, v.device[n]), slices.Clone(p.devices)
		v.s.Processes = append(v.s.Processes, c)
		v.s.Balances = append(v.s.Balances, p.balances(index)...)
	}
}

// totals lists the totals of a process. With one GPU alone, known and unknown devices
// are one, and the sum over all devices has the peak that belongs to both together.
func (v *view) totals(p *process, only int32) []Total {
	var list []Total
	for _, t := range p.totals {
		sums := only != UnknownDevice && t.Kind != Pinned
		if sums != (t.Device == allDevices) {
			continue
		}
		if sums {
			t.Device = only
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// place returns the key with UnknownDevice replaced where one GPU carries the process.
func (v *view) place(k siteKey) siteKey {
	if k.device == UnknownDevice && k.kind != Pinned {
		k.device = v.device[k.process]
	}
	return k
}

func (v *view) sites() {
	l, session := v.l, v.s.End-v.s.Begin
	list := make([]Site, 0, len(l.sites))
	steps := make([]uint64, len(l.sites)*HistoryLen)
	var later []int // sites that are part of another one, which knows the device
	at := make([]int, len(l.sites))
	add := func(n int) {
		s := &l.sites[n]
		out := Site{
			Process: v.index[s.process], Stack: s.stack, API: s.api, Kind: s.kind, Device: v.place(s.siteKey).device,
			LiveObjects: s.liveObjects, LiveBytes: s.liveBytes,
			AllocObjects: s.allocObjects, AllocBytes: s.allocBytes,
			Oldest: s.oldest, Growth: int64(s.liveBytes - s.history.at(session/2)),
			History: steps[n*HistoryLen : (n+1)*HistoryLen : (n+1)*HistoryLen],
		}
		if s.first != 0 {
			out.Oldest = l.blocks.at(s.first).time
		}
		s.history.fill(out.History, session)
		at[n] = len(list)
		list = append(list, out)
	}
	for n := range l.sites {
		if k := v.place(l.sites[n].siteKey); k != l.sites[n].siteKey {
			if _, twin := l.siteOf[k]; twin {
				later = append(later, n)
				continue
			}
		}
		add(n)
	}
	for _, n := range later {
		add(n)
		part := list[len(list)-1]
		list = list[:len(list)-1]
		list[at[l.siteOf[v.place(l.sites[n].siteKey)]]].merge(&part)
	}
	slices.SortFunc(list, compareSites)
	v.s.Sites = list
}

func (s *Site) merge(part *Site) {
	s.LiveObjects += part.LiveObjects
	s.LiveBytes += part.LiveBytes
	s.AllocObjects += part.AllocObjects
	s.AllocBytes += part.AllocBytes
	s.Growth += part.Growth
	if s.Oldest == 0 || part.Oldest != 0 && part.Oldest < s.Oldest {
		s.Oldest = part.Oldest
	}
	for i, b := range part.History {
		s.History[i] += b
	}
}

func compareSites(a, b Site) int {
	return cmp.Or(
		cmp.Compare(b.LiveBytes, a.LiveBytes),
		cmp.Compare(a.Process, b.Process),
		cmp.Compare(a.Stack, b.Stack),
		cmp.Compare(a.API, b.API),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Device, b.Device),
	)
}

func (v *view) failures() {
	byKey := make(map[failureKey]int)
	for k, f := range v.l.failures {
		k.siteKey = v.place(k.siteKey)
		i, ok := byKey[k]
		if !ok {
			i = len(v.s.Failures)
			byKey[k] = i
			v.s.Failures = append(v.s.Failures, Failure{
				Process: v.index[k.process], Stack: k.stack, API: k.api, Kind: k.kind, Device: k.device, Result: k.result,
			})
		}
		out := &v.s.Failures[i]
		out.Count += f.Count
		out.Bytes += f.Bytes
		if f.LastTime > out.LastTime || f.LastTime == out.LastTime && f.LastBytes > out.LastBytes {
			out.LastBytes, out.LastTime = f.LastBytes, f.LastTime
		}
	}
	slices.SortFunc(v.s.Failures, func(a, b Failure) int {
		return cmp.Or(
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Process, b.Process),
			cmp.Compare(a.Stack, b.Stack),
			cmp.Compare(a.API, b.API),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Result, b.Result),
		)
	})
}
