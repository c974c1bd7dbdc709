// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot returns a copy of the books as of now, in ns of CLOCK_MONOTONIC; wall is the same moment
// on the wall clock. Its duration grows with the sites, not with the live allocations. The ledger
// keeps no reference to the copy.
func (l *Ledger) Snapshot(now uint64, wall time.Time) *Snapshot { return l.take(now, wall, view{}) }

// Running is like Snapshot, without processes that have ended: after a day of short processes, they
// are nearly all of it, and hold no memory.
func (l *Ledger) Running(now uint64, wall time.Time) *Snapshot {
	return l.take(now, wall, view{running: true})
}

// Levels is Snapshot for one of many moments in a chart: its Sites are those with live memory, and
// have only what lives there. It has no Failures, Objects and Walks.
func (l *Ledger) Levels(now uint64, wall time.Time) *Snapshot {
	return l.take(now, wall, view{levels: true})
}

func (l *Ledger) take(now uint64, wall time.Time, of view) *Snapshot {
	s := &Snapshot{
		Host:     l.options.Host,
		Begin:    l.options.Begin,
		Opened:   l.openedAt,
		End:      max(now, l.options.Begin),
		Wall:     wall,
		GPUs:     append([]GPU(nil), l.gpus...), // nil if empty, in books from a checkpoint too
		Stats:    l.stats,
		Warnings: slices.Clone(l.warnings),
		Sampling: l.rate,
	}
	s.Stats.Reused = l.reused()
	s.Forgotten = l.gone.list()
	s.Stats.LostFor, s.Stats.Missing, s.Stats.Truncated = copyCounts(l.stats.LostFor), copyCounts(l.stats.Missing), copyCounts(l.stats.Truncated)
	l.grown(s.GPUs)
	v := newView(l, s)
	v.running, v.levels = of.running, of.levels
	v.processes()
	l.bookedSince(s)
	v.sites()
	v.pools()
	if v.levels {
		v.olderOfWalks()
		return s
	}
	v.failures()
	v.objects()
	v.walks()
	return s
}

func newView(l *Ledger, s *Snapshot) *view {
	n := len(l.procs)
	return &view{
		l: l, s: s, device: make([]int32, n), only: make([]string, n), index: make([]int, n),
		moments: make([][]tensorState, n), spans: make([]sitesSpan, n), recent: make([]uint64, n),
	}
}

// sitesSpan is a range of the sites that are shown.
type sitesSpan struct{ from, to int }

// view is a snapshot under construction.
type view struct {
	l       *Ledger
	s       *Snapshot
	running bool            // it leaves out processes that have ended
	levels  bool            // it has live memory only: see Levels
	alone   bool            // it has one process only
	number  uint32          // number of that process
	at      map[uint32]mark // by process number: the moment of a process that is not shown as of now
	device  []int32         // by process number: the device that UnknownDevice means
	only    []string        // by process number: UUID of the GPU that alone carries the process
	index   []int           // by process number: index in Snapshot.Processes
	moments [][]tensorState // by process number, then as in process.tensors
	spans   []sitesSpan     // by process number: its sites that are not of kind Tensor
	recent  []uint64        // by process number: Recent.Newest of its sites
}

func (v *view) leavesOut(process uint32) bool {
	p := &v.l.procs[process]
	return p.free || v.running && p.End != 0 || v.alone && process != v.number
}

func (v *view) processes() {
	order := make([]int, 0, len(v.l.procs))
	for n := range v.l.procs {
		if !v.leavesOut(uint32(n)) {
			order = append(order, n)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := &v.l.procs[a], &v.l.procs[b]
		return cmp.Or(cmp.Compare(p.PID, q.PID), cmp.Compare(p.Begin, q.Begin), cmp.Compare(a, b))
	})
	for index, n := range order {
		p := &v.l.procs[n]
		v.index[n] = index
		uuids, how := p.ordinals()
		v.device[n], v.only[n] = p.onlyGPU(uuids)
		for i := range p.tensors {
			if at, ok := v.at[uint32(n)]; ok {
				v.moments[n] = append(v.moments[n], at.tensors[i])
			} else {
				v.moments[n] = append(v.moments[n], v.l.stateOf(&p.tensors[i]))
			}
		}
		c := p.Process
		c.Ordinals, c.Beyond, c.OOM = how, p.beyondList(), p.oom
		most := p.highestOf()
		c.PeakBytes, c.PeakTime = most.bytes, most.time
		c.Totals, c.Devices = v.totals(p, v.device[n], v.moments[n]), slices.Clone(uuids)
		v.s.Processes = append(v.s.Processes, c)
		v.s.Balances = append(v.s.Balances, v.l.balances(p, index)...)
		if !v.alone { // its last reading may be of another moment than its peak
			v.s.System = append(v.s.System, p.systemOf(index, uuids)...)
		}
		for cause, r := range p.releases {
			if r.Objects != 0 {
				r.Process, r.Cause = index, Cause(cause)
				v.s.Releases = append(v.s.Releases, r)
			}
		}
	}
}

// totals returns the totals of a process. If it uses one GPU only, known and unknown device are
// one, and the sum over all devices has the peak of both together.
func (v *view) totals(p *process, only int32, moments []tensorState) []Total {
	var list []Total
	for _, t := range p.totals {
		sums := only != UnknownDevice && !t.Kind.OnHost()
		if sums != (t.Device == allDevices) || t.AllocObjects == 0 {
			continue
		}
		if sums {
			t.Device = only
		}
		list = append(list, t.Total)
	}
	for i := range p.tensors {
		t := &p.tensors[i]
		live, freed := moments[i].live, moments[i].freed
		if live == (count{}) && freed == (count{}) {
			continue
		}
		list = append(list, Total{
			Device: t.device, Kind: Tensor, LiveObjects: live.objects, LiveBytes: live.bytes,
			AllocObjects: live.objects + freed.objects, AllocBytes: live.bytes + freed.bytes,
			PeakBytes: max(t.livePeak.bytes, live.bytes), PeakTime: t.livePeak.time,
		})
	}
	slices.SortFunc(list, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// shownKey returns the key by which a site is shown, without contexts and spaces, and with the
// device that UnknownDevice means if the process uses one GPU only.
func (v *view) shownKey(k siteKey) siteKey {
	k.context, k.space, k.class = 0, 0, 0
	if k.device == UnknownDevice && !k.kind.OnHost() && k.kind != Tensor {
		k.device = v.device[k.process]
	}
	return k
}

func (v *view) sites() {
	list := siteList{make([]Site, 0, len(v.l.sites)), make(map[siteKey]int, len(v.l.sites))}
	for n := range v.l.procs {
		if !v.leavesOut(uint32(n)) {
			v.spans[n].from = len(list.list)
			v.withSites(uint32(n), func(sites []uint32) { v.sitesOf(sites, &list) })
			v.spans[n].to = len(list.list)
		}
	}
	v.tensors(&list)
	v.asleep(&list)
	slices.SortFunc(list.list, compareSites)
	v.s.Sites = list.list
}

// sitesOf adds the sites of one process that are not of kind Tensor.
func (v *view) sitesOf(sites []uint32, list *siteList) {
	l, session := v.l, v.s.End-v.s.Begin
	shown := make([]uint32, 0, len(sites))
	for _, n := range sites {
		s := &l.sites[n]
		// otherwise all its allocations moved to another device's site
		if s.kind != aliased && s.kind != Tensor && s.allocObjects != 0 && (!v.levels || s.liveBytes != 0) {
			shown = append(shown, n)
		}
	}
	from := uint64(0)
	if len(shown) > 0 {
		from = v.since(l.sites[shown[0]].process)
	}
	var steps []uint64
	var cohorts []Cohort
	recent := uint64(0)
	if len(sites) > 0 && !v.levels {
		recent = v.newestRecent(l.sites[sites[0]].process, sites)
		v.recent[l.sites[sites[0]].process] = recent
	}
	if !v.levels {
		steps, cohorts = make([]uint64, len(shown)*HistoryLen), make([]Cohort, len(shown)*CohortLen)
	}
	for n, number := range shown {
		s := &l.sites[number]
		key := v.shownKey(s.siteKey)
		out := Site{
			Process: v.index[s.process], Stack: s.stack, API: s.api, Kind: s.kind, Device: key.device,
			LiveObjects: s.liveObjects, LiveBytes: s.liveBytes,
			AllocObjects: s.allocObjects, AllocBytes: s.allocBytes,
			Segment: s.segment, Tensors: min(s.inside, s.liveBytes),
			Evicted: s.evicted, Crowded: s.crowded, Oldest: s.oldest,
		}
		if s.first != 0 {
			out.Oldest = l.entries.at(s.first).time
		}
		if v.levels {
			list.add(key, &out)
			continue
		}
		out.History = steps[n*HistoryLen : (n+1)*HistoryLen : (n+1)*HistoryLen]
		v.addOwners(&out, s.siteKey)
		v.addHolders(&out, s.siteKey)
		s.history.fill(out.History, from, session)
		s.fillCohorts(l.options.Begin, v.s.End, recent, &out, cohorts[n*CohortLen:(n+1)*CohortLen:(n+1)*CohortLen])
		out.grow(from, session, s.history.at)
		list.add(key, &out)
	}
}

// since returns Snapshot.Since of a process, in ns after Begin.
func (v *view) since(process uint32) uint64 {
	return sinceOf(v.s.Begin, v.l.procs[process].Begin, v.s.End) - v.s.Begin
}

// pools adds the pools; if a process uses one GPU only, known and unknown device are one.
func (v *view) pools() {
	for n := range v.l.pools {
		x := &v.l.pools[n]
		if !x.inUse || x.kind != 0 || v.leavesOut(x.process) {
			continue
		}
		least, most := v.l.held(x)
		out := Pool{
			Process: v.index[x.process], Handle: x.handle, Device: x.on(), Objects: x.objects,
			Used: x.used, Reserve: x.reserve, Least: least, Held: most, Threshold: x.threshold, Destroyed: x.destroyed,
		}
		if out.Device == UnknownDevice {
			out.Device = v.device[x.process]
		}
		v.s.Pools = append(v.s.Pools, out)
	}
	slices.SortFunc(v.s.Pools, func(a, b Pool) int {
		return cmp.Or(
			cmp.Compare(a.Process, b.Process),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Handle, b.Handle),
			compareBool(a.Destroyed, b.Destroyed),
			cmp.Compare(a.Used, b.Used),
			cmp.Compare(a.Reserve, b.Reserve),
		)
	})
	merged := v.s.Pools[:0]
	for _, x := range v.s.Pools {
		if n := len(merged); n > 0 && x.Handle == 0 && merged[n-1].Handle == 0 && merged[n-1].Process == x.Process && merged[n-1].Device == x.Device {
			to := &merged[n-1]
			to.Objects += x.Objects
			to.Used += x.Used
			to.Reserve += x.Reserve
			to.Threshold = max(to.Threshold, x.Threshold)
			continue
		}
		merged = append(merged, x)
	}
	v.s.Pools = merged
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (s *Site) merge(part *Site) {
	s.LiveObjects += part.LiveObjects
	s.LiveBytes += part.LiveBytes
	s.AllocObjects += part.AllocObjects
	s.AllocBytes += part.AllocBytes
	s.Segment = s.Segment || part.Segment
	s.Tensors += part.Tensors
	s.Asleep += part.Asleep
	s.Growth += part.Growth
	if s.Oldest == 0 || part.Oldest != 0 && part.Oldest < s.Oldest {
		s.Oldest = part.Oldest
	}
	s.Evicted += part.Evicted
	s.Crowded += part.Crowded
	s.mergeOwners(part)
	s.mergeHolders(part)
	s.AddCohorts(part)
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
		if v.leavesOut(k.process) {
			continue
		}
		k.siteKey = v.shownKey(k.siteKey)
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
		out.Crowded += f.Crowded
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
