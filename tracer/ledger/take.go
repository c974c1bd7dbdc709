// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot returns a copy of the books at now, in ns of CLOCK_MONOTONIC; wall is the same moment on
// the wall clock. Its duration grows with the sites, not with the live allocations. The ledger
// keeps no reference to the copy.
func (l *Ledger) Snapshot(now uint64, wall time.Time) *Snapshot { return l.take(now, wall, view{}) }

// Running is like Snapshot, without processes that have ended: after a day of short processes, they
// are nearly all of it, and hold no memory.
func (l *Ledger) Running(now uint64, wall time.Time) *Snapshot {
	return l.take(now, wall, view{running: true})
}

// Levels is Snapshot for one of many moments in a chart: its Sites are those with live memory, and
// have only what lives there. It has no Failures, Objects, Caches and Walks.
func (l *Ledger) Levels(now uint64, wall time.Time) *Snapshot {
	return l.take(now, wall, view{levels: true})
}

func (l *Ledger) take(now uint64, wall time.Time, of view) *Snapshot {
	s := &Snapshot{
		Host:       l.options.Host,
		Unattached: l.options.Unattached,
		Begin:      l.options.Begin,
		Opened:     l.openedAt,
		End:        max(now, l.options.Begin),
		Wall:       wall,
		GPUs:       append([]GPU(nil), l.gpus.list...), // nil if empty, in books from a checkpoint too
		Stats:      l.stats,
		Warnings:   slices.Clone(l.warnings),
		Sampling:   l.rate,
	}
	s.Forgotten = l.gone.list()
	s.Stats.LostFor, s.Stats.Missing, s.Stats.Truncated = copyCounts(l.stats.LostFor), copyCounts(l.stats.Missing), copyCounts(l.stats.Truncated)
	l.gpus.earlier(s.GPUs)
	v := view{s: s, running: of.running, levels: of.levels, of: map[*member]*processView{}}
	for _, p := range l.procs {
		s.Stats.Reused += p.endedEarly()
		if !v.running || p.End == 0 {
			v.add(p)
		}
	}
	v.processes()
	s.bookedSince(l.gpus.read)
	v.sites()
	v.pools()
	if v.levels {
		v.olderOfWalks()
		return s
	}
	v.failures()
	v.objects()
	v.caches()
	v.walks()
	return s
}

// view is a snapshot under construction.
type view struct {
	s       *Snapshot
	running bool // it leaves out processes that have ended
	levels  bool // it has live memory only: see Levels
	alone   bool // it has one process only
	list    []*processView
	of      map[*member]*processView
}

// processView is one process of a view.
type processView struct {
	*process
	all      *view
	at       *mark         // the earlier moment at which the process is shown, or nil
	only     int32         // the device that UnknownDevice means
	onlyUUID string        // UUID of the GPU that alone carries the process
	index    int           // in Snapshot.Processes
	moments  []tensorState // as in torch.tensors
	from, to int           // its sites that are not of kind Tensor, among those that are shown
	newest   uint64        // Recent.Newest of its sites
}

// add adds a process.
func (v *view) add(p *process) *processView {
	x := &processView{process: p, all: v}
	v.list, v.of[p.member] = append(v.list, x), x
	return x
}

func (v *view) processes() {
	slices.SortFunc(v.list, func(p, q *processView) int {
		return cmp.Or(cmp.Compare(p.PID, q.PID), cmp.Compare(p.Begin, q.Begin), cmp.Compare(p.number, q.number))
	})
	for index, x := range v.list {
		x.index = index
		x.show(v.s)
	}
}

// show adds the process, and what is known of it as a whole.
func (v *processView) show(s *Snapshot) {
	uuids, how := v.ordinals()
	v.only, v.onlyUUID = v.onlyGPU(uuids)
	for i := range v.tensors {
		if v.at != nil {
			v.moments = append(v.moments, v.at.tensors[i])
		} else {
			v.moments = append(v.moments, v.stateOf(&v.tensors[i]))
		}
	}
	c := v.Process
	c.Ordinals, c.Beyond, c.OOM = how, v.beyondList(), v.oom
	most := v.highestOf()
	c.PeakBytes, c.PeakTime = most.bytes, most.time
	c.Totals, c.Devices = v.totalsOf(v.only, v.moments), slices.Clone(uuids)
	s.Processes = append(s.Processes, c)
	s.Balances = append(s.Balances, v.balances(v.index)...)
	if !v.all.alone { // its last reading may be of another moment than its peak
		s.System = append(s.System, v.systemOf(v.index, uuids)...)
	}
	for cause, r := range v.releases {
		if r.Objects != 0 {
			r.Process, r.Cause = v.index, Cause(cause)
			s.Releases = append(s.Releases, r)
		}
	}
}

// shownKey is the key by which a site is shown.
type shownKey struct {
	siteKey
	process int
}

// shownKey returns the key by which a site is shown, without contexts and spaces, and with the
// device that UnknownDevice means if the process uses one GPU only.
func (v *processView) shownKey(k siteKey) shownKey {
	k.context, k.space, k.class = 0, 0, 0
	if k.device == UnknownDevice && !k.kind.OnHost() && k.kind != Tensor {
		k.device = v.only
	}
	return shownKey{k, v.index}
}

func (v *view) sites() {
	n := 0
	for _, x := range v.list {
		n += len(x.process.sites)
	}
	list := siteList{make([]Site, 0, n), make(map[shownKey]int, n)}
	for _, x := range v.list {
		x.from = len(list.list)
		x.withSites(func(sites []*site) { x.addSites(sites, &list) })
		x.to = len(list.list)
	}
	v.tensors(&list)
	v.asleep(&list)
	slices.SortFunc(list.list, compareSites)
	v.s.Sites = list.list
}

// addSites adds the sites of the process that are not of kind Tensor.
func (v *processView) addSites(sites []*site, list *siteList) {
	s, levels := v.all.s, v.all.levels
	session := s.End - s.Begin
	shown := make([]*site, 0, len(sites))
	for _, x := range sites {
		// otherwise all its allocations moved to another device's site
		if x.kind != aliased && x.kind != Tensor && x.allocObjects != 0 && (!levels || x.liveBytes != 0) {
			shown = append(shown, x)
		}
	}
	from := v.since()
	var steps []uint64
	var cohorts []Cohort
	if !levels {
		v.newest = v.newestRecent(sites)
		steps, cohorts = make([]uint64, len(shown)*HistoryLen), make([]Cohort, len(shown)*CohortLen)
	}
	for n, x := range shown {
		key := v.shownKey(x.siteKey)
		out := Site{
			Process: v.index, Stack: x.stack, API: x.api, Kind: x.kind, Device: key.device,
			LiveObjects: x.liveObjects, LiveBytes: x.liveBytes,
			AllocObjects: x.allocObjects, AllocBytes: x.allocBytes,
			Segment: x.segment, Tensors: min(x.inside, x.liveBytes),
			Evicted: x.evicted, Crowded: x.crowded, Oldest: x.oldest,
		}
		if x.first != 0 {
			out.Oldest = v.entries.at(x.first).time
		}
		if levels {
			list.add(key, &out)
			continue
		}
		out.History = steps[n*HistoryLen : (n+1)*HistoryLen : (n+1)*HistoryLen]
		v.addOwners(&out, x.siteKey)
		v.addHolders(&out, x.siteKey)
		x.track.History.Fill(out.History, from, session)
		out.setTrack(x.track.View(s.Begin, s.End, v.newest, cohorts[n*CohortLen:(n+1)*CohortLen:(n+1)*CohortLen]))
		out.grow(from, session, x.track.History.At)
		list.add(key, &out)
	}
}

// since returns Snapshot.Since of the process, in ns after Begin.
func (v *processView) since() uint64 {
	return sinceOf(v.all.s.Begin, v.Begin, v.all.s.End) - v.all.s.Begin
}

// pools adds the pools; if a process uses one GPU only, known and unknown device are one.
func (v *view) pools() {
	for _, p := range v.list {
		for n := range p.process.pools {
			x := &p.process.pools[n]
			if !x.inUse || x.kind != 0 {
				continue
			}
			least, most := p.heldBy(x)
			out := Pool{
				Process: p.index, Handle: x.handle, Device: x.on(), Objects: x.objects,
				Used: x.used, Reserve: x.reserve, Least: least, Held: most, Threshold: x.threshold, Destroyed: x.destroyed,
			}
			if out.Device == UnknownDevice {
				out.Device = p.only
			}
			v.s.Pools = append(v.s.Pools, out)
		}
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
			to.Least += x.Least
			to.Held += x.Held
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

// AddFigures adds the objects, bytes and growth of another site, and takes over its oldest
// allocation if that is older.
func (s *Site) AddFigures(part *Site) {
	s.LiveObjects += part.LiveObjects
	s.LiveBytes += part.LiveBytes
	s.AllocObjects += part.AllocObjects
	s.AllocBytes += part.AllocBytes
	s.Tensors += part.Tensors
	s.Asleep += part.Asleep
	s.Growth += part.Growth
	if s.Oldest == 0 || part.Oldest != 0 && part.Oldest < s.Oldest {
		s.Oldest = part.Oldest
	}
}

func (s *Site) merge(part *Site) {
	s.AddFigures(part)
	s.Segment = s.Segment || part.Segment
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
	type shownFailure struct {
		shownKey
		result int32
	}
	byKey := make(map[shownFailure]int)
	for _, p := range v.list {
		for k, f := range p.process.failures {
			key := shownFailure{p.shownKey(k.siteKey), k.result}
			i, ok := byKey[key]
			if !ok {
				i = len(v.s.Failures)
				byKey[key] = i
				v.s.Failures = append(v.s.Failures, Failure{
					Process: p.index, Stack: k.stack, API: k.api, Kind: k.kind, Device: key.device, Result: k.result,
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
