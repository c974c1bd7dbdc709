// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// AddHighest adds Snapshot.Highest: the same books, in which each running process has what it had
// when it had most since AddHighest was called last, or since it began; it is nil if all have most
// now. It must follow the call of Ledger.Snapshot that took the snapshot: nothing may be booked in
// between.
//
// It measures the same as the peak: tensors on one GPU where PyTorch reports them, else what the
// process allocated. All that is live in a process is of the same instant, so that its parts add
// up; instants of processes differ. Growth, History, Cohorts, Oldest and Holders are those of the
// snapshot. The cache is spread evenly over the segments. Tensors beyond the sample that came and
// went between two events are not seen. A process with memory asleep is shown as it is now.
func (l *Ledger) AddHighest(s *Snapshot) {
	s.Highest, l.follows = nil, true
	moved := map[*process]bool{}
	l.eachAlive(func(p *process) {
		if p.high.bytes > p.highNow() && len(p.asleep.ranges) == 0 && !p.purged {
			moved[p] = true
		}
	})
	if len(moved) > 0 {
		s.Highest = l.atHighest(s, moved)
	}
	l.eachAlive(func(p *process) {
		p.high = highMark{highest{p.highNow(), s.End}, p.high.number + 1}
	})
}

// atHighest returns a snapshot with these processes as they were at their highest.
func (l *Ledger) atHighest(s *Snapshot, moved map[*process]bool) *Snapshot {
	high := *s
	high.Processes, high.Sites, high.Tensors, high.Balances, high.System, high.Releases = nil, nil, nil, nil, nil, nil
	high.GPUs = slices.Clone(s.GPUs)
	v := view{s: &high, levels: true, of: map[*member]*processView{}}
	for _, p := range l.procs {
		x := v.add(p)
		if !moved[p] {
			continue
		}
		was := *p
		defer func() { *p = was }()
		p.tensors = slices.Clone(p.tensors)
		for k := range p.tensors {
			p.tensors[k].setHigh(p)
		}
		x.moveTo(func(s *site) (objects, bytes uint64, kept bool) {
			if s.high == nil || s.high.number != p.high.number {
				return 0, 0, false
			}
			return s.high.objects, s.high.bytes, true
		})
	}
	v.processes()
	high.bookedSince(l.gpus.read)
	v.sites()
	high.Sites = withPast(high.Sites, s.Sites)
	return &high
}

// AddPeaks adds Snapshot.Peaks. It must follow the call that took the snapshot: nothing may be
// booked in between. Its duration grows with the sites of the processes that have ended.
func (l *Ledger) AddPeaks(s *Snapshot) {
	type ended struct {
		*process
		index int
		highest
	}
	var list []ended
	l.eachAt(s, func(p *process, index int) {
		if p.End != 0 && p.peak.bytes != 0 {
			list = append(list, ended{p, index, p.highestOf()})
		}
	})
	slices.SortFunc(list, func(a, b ended) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.index, b.index))
	})
	list = list[:min(len(list), maxPeaks)]
	slices.SortFunc(list, func(a, b ended) int { return cmp.Compare(a.index, b.index) })
	s.Peaks = nil
	for _, x := range list {
		at := &x.process.peak
		s.Peaks = append(s.Peaks, Peak{
			Process: x.index, Bytes: x.bytes, Time: x.time, Tensors: at.torch, OneGPU: x.onOneGPU(), SitesTime: at.time, SitesBytes: at.bytes,
			Books: x.booksAtPeak(s, x.highest), OOM: x.oom,
		})
	}
}

// AddStuck adds Snapshot.Stuck. It must follow the call that took the snapshot: nothing may be
// booked in between. Its duration grows with the live blocks.
func (l *Ledger) AddStuck(s *Snapshot) {
	s.Stuck = nil
	l.eachAt(s, func(p *process, index int) {
		if !p.purged && len(p.tensors) > 0 {
			p.addStuck(s, index)
		}
	})
	slices.SortFunc(s.Stuck, func(a, b Stuck) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Device, b.Device))
	})
}

// AddWalk replaces the walks of a process in a snapshot by those in the books, since a walk of the
// snapshot's moment ends later, and its Caches by the latest reading. If no walk has found anything
// yet, and one is under way, that walk counts as failed.
func (l *Ledger) AddWalk(s *Snapshot, pid uint32) {
	p := l.walkOf(pid, s.End)
	if p == nil {
		return
	}
	index := slices.IndexFunc(s.Processes, func(x Process) bool { return x.ID() == p.ID() })
	if index >= 0 && p.walks != nil {
		p.replaceWalks(s, index)
	}
	if index >= 0 && p.allocator != nil {
		p.replaceCaches(s, index)
	}
}

// NoteLasting marks what a process keeps in a snapshot as lasting if the walks next before and
// after it found as many bytes, of the same parts of a model.
func NoteLasting(l *Ledger, s *Snapshot, pid uint32) {
	p := l.walkOf(pid, s.End)
	if p == nil || p.walks == nil {
		return
	}
	index := slices.IndexFunc(s.Processes, func(x Process) bool { return x.ID() == p.ID() })
	shown := s.LatestWalk(index)
	var before, after *Walked
	for i := range p.walks.list {
		switch w := &p.walks.list[i]; {
		case w.Failure != "":
		case w.Time <= s.End:
			before = w
		case after == nil:
			after = w
		}
	}
	if shown == nil || before == nil || after == nil {
		return
	}
	type key struct {
		path   string
		device int32
	}
	found := map[key]*Held{}
	for i := range before.Held {
		found[key{before.Held[i].Path, before.Held[i].Device}] = &before.Held[i]
	}
	lasting := map[key]bool{}
	for i := range after.Held {
		x := &after.Held[i]
		k := key{x.Path, x.Device}
		if y := found[k]; y != nil {
			lasting[k] = x.Bytes == y.Bytes && x.Older == y.Older && x.Parts == y.Parts && x.InMotion+y.InMotion == 0
		}
	}
	shown.Held = slices.Clone(shown.Held)
	for i := range shown.Held {
		x := &shown.Held[i]
		x.Lasted = lasting[key{x.Path, x.Device}]
	}
}

// eachAt calls do for the processes that are in a snapshot, with their index there.
func (l *Ledger) eachAt(s *Snapshot, do func(p *process, index int)) {
	index := indexOf(s.Processes)
	for _, p := range l.procs {
		if i, ok := index[p.ID()]; ok {
			do(p, i)
		}
	}
}
