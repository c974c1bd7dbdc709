// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// AddHighest adds Snapshot.Highest: the same books, in which each running process has what it had
// when it had most since AddHighest was called last; it is nil if all have most now. It must follow
// the call of Ledger.Snapshot that took the snapshot: nothing may be booked in between.
//
// What is measured is what the peak is of: tensors on one GPU where PyTorch reports them, else
// what the process allocated. All that is live in a process is of the same instant, so that its parts
// add up; processes have instants of their own. Growth, History, Cohorts, Oldest and Holders are
// those of the snapshot. The cache is spread evenly over the segments. What no event told is not
// seen: tensors beyond the sample that came and went. A process with memory asleep is as of now.
func (l *Ledger) AddHighest(s *Snapshot) {
	s.Highest = nil
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

// highNow returns what a process has of what its peak is of.
func (p *torch) highNow() (bytes uint64) {
	if p.peak.torch {
		for i := range p.tensors {
			if t := &p.tensors[i]; t.device != CPUDevice {
				bytes = max(bytes, t.now.allocated)
			}
		}
		return bytes
	}
	for i := range p.totals {
		if on := p.totals[i].Device; (on == allDevices) != p.peak.more {
			bytes = max(bytes, p.owned(on))
		}
	}
	return bytes
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

// setHigh sets an allocator to its state at the highest.
func (t *tensors) setHigh(p *process) {
	if t.atHigh.number == p.high.number {
		t.now = t.atHigh.now
	}
	t.reading, t.since, t.changes = tensorReading{taken: true}, sampleSince{}, nil
}

// withPast gives live sites what else a snapshot of the same books has of them.
func withPast(live, all []Site) []Site {
	type key struct {
		stack   uint64
		process int
		device  int32
		kind    Kind
		api     string
	}
	of := func(x *Site) key { return key{x.Stack, x.Process, x.Device, x.Kind, x.API} }
	at := make(map[key]int, len(all))
	for i := range all {
		at[of(&all[i])] = i
	}
	for i := range live {
		x := &live[i]
		if k, ok := at[of(x)]; ok {
			past := all[k]
			past.LiveObjects, past.LiveBytes, past.Tensors, past.Asleep = x.LiveObjects, x.LiveBytes, x.Tensors, x.Asleep
			*x = past
		}
	}
	return live
}
