// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// booksAtPeak returns the books of the process as they were at its peak. It puts the figures of
// that moment in place of those of now, has them copied, and restores them.
func (p *process) booksAtPeak(now *Snapshot, at highest) *Snapshot {
	was, m := *p, *p.member
	defer func() { *p, *p.member = was, m }()
	p.End, p.Replaced, p.walks, p.asleep = 0, false, nil, asleep{}
	p.setReadings()
	p.tensors = slices.Clone(p.tensors)
	for i := range p.tensors {
		p.tensors[i].setPeak(p, at)
	}
	s := &Snapshot{
		Host: now.Host, Begin: now.Begin, End: now.End, Wall: now.Wall.Add(-time.Duration(minus(now.End, at.time))),
		GPUs: now.GPUs, Stats: now.Stats, Sampling: now.Sampling,
	}
	v := view{s: s, alone: true, of: map[*member]*processView{}}
	v.add(p).moveTo(func(s *site) (objects, bytes uint64, kept bool) {
		return s.peak.objects, s.peak.bytes, s.peak.number == p.peak.number
	})
	v.processes()
	v.sites()
	for i := range s.Sites {
		x := &s.Sites[i]
		x.Oldest, x.Growth, x.History, x.Cohorts, x.Recent, x.Asleep = 0, 0, nil, nil, nil, 0
	}
	s.End = at.time
	return s
}

// setReadings sets NVML's readings to the latest before the peak.
func (p *gpuMap) setReadings() {
	list := slices.Clone(p.readings)
	for i := range list {
		r := &list[i]
		if r.atPeak.number == p.peak.number {
			r.last, r.taken, r.lastLive = r.atPeak.last, r.atPeak.taken, r.atPeak.lastLive
		}
		r.present = true
	}
	p.readings = slices.DeleteFunc(list, func(r reading) bool { return r.taken == 0 })
}

// setPeak sets an allocator to its state at the peak. What it had more than the event that the
// books are as of is in blocks that are not in the sample.
func (t *tensors) setPeak(p *process, at highest) {
	if t.atPeak.number == p.peak.number {
		t.now = t.atPeak.now
	}
	if p.peak.torch && t.peak == at && at.bytes > t.now.allocated {
		more := at.bytes - t.now.allocated
		t.now.allocated += more
		t.now.live += more
		t.now.reserved = max(t.now.reserved, t.now.allocated)
	}
	t.reading, t.since = tensorReading{taken: true}, sampleSince{}
	t.changes, t.returned, t.outside, t.atUsage, t.olderFreed = nil, nil, 0, firstReport{}, growth.History{}
}

// stateAtPeak returns an allocator's state: its totals are exact, and its classes follow the
// sample.
func (s *session) stateAtPeak(t *tensors, sample *[SizeClasses]classSample) tensorState {
	m := tensorState{allocated: t.now.allocated, reserved: t.now.reserved, classes: make([]tensorClass, SizeClasses)}
	for class := range m.classes {
		x := &sample[class].live
		m.classes[class].live = count{}.changed(&signedCount{int64(x.objects), int64(x.bytes)}, s.inclusion(class))
	}
	if t.now.liveKnown {
		s.fitLive(m.classes, t.now.live)
	}
	for class := range m.classes {
		m.live.take(&m.classes[class].live)
	}
	return m
}

// mark is a moment at which a view has a process.
type mark struct {
	tensors []tensorState // as in torch.tensors
	// what a site had then; false: what it has now
	of func(s *site) (objects, bytes uint64, kept bool)
}

// moveTo has the view show the process at a moment, whose allocators have the state of then
// already. The caller restores the process.
func (v *processView) moveTo(of func(s *site) (objects, bytes uint64, kept bool)) {
	p := v.process
	p.freeRuns, p.totals = nil, slices.Clone(p.totals)
	for i := range p.totals {
		p.totals[i].LiveObjects, p.totals[i].LiveBytes = 0, 0
	}
	p.past = true
	v.at = &mark{of: of}
	samples := make([][SizeClasses]classSample, len(p.tensors))
	v.withSites(func(sites []*site) { p.sumSites(sites, samples) })
	for i := range p.tensors {
		v.at.tensors = append(v.at.tensors, p.stateAtPeak(&p.tensors[i], &samples[i]))
	}
}

// withSites is process.withSites, at the moment at which the view has the process.
func (v *processView) withSites(do func(sites []*site)) {
	if v.at == nil {
		v.process.withSites(do)
		return
	}
	v.process.withSites(func(sites []*site) {
		type figures struct{ objects, bytes, squares, inside uint64 }
		was := make([]figures, len(sites))
		for i, s := range sites {
			was[i] = figures{s.liveObjects, s.liveBytes, s.liveSquares, s.inside}
			if objects, bytes, kept := v.at.of(s); kept {
				s.liveObjects, s.liveBytes, s.liveSquares = objects, bytes, objects
			}
			s.inside = s.liveBytes
		}
		do(sites)
		for i, s := range sites {
			x := &was[i]
			s.liveObjects, s.liveBytes, s.liveSquares, s.inside = x.objects, x.bytes, x.squares, x.inside
		}
	})
}

// sumSites sums sites into the totals of the process, and its sample by device and class.
func (p *heap) sumSites(sites []*site, samples [][SizeClasses]classSample) {
	for _, s := range sites {
		switch {
		case s.kind == aliased:
		case s.kind == Tensor:
			c := &samples[s.total][s.class]
			c.live.objects += s.liveObjects
			c.live.bytes += s.liveBytes
		default:
			for _, i := range [...]uint32{p.total(s.device, s.kind), p.total(allDevices, s.kind)} {
				p.totals[i].LiveObjects += s.liveObjects
				p.totals[i].LiveBytes += s.liveBytes
			}
		}
	}
}

// setHigh sets an allocator to its state at the highest.
func (t *tensors) setHigh(p *process) {
	if t.atHigh.number == p.high.number {
		t.now = t.atHigh.now
	}
	t.reading, t.since, t.changes, t.returned = tensorReading{taken: true}, sampleSince{}, nil, nil
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

// maxPeaks is how many processes of a snapshot get a Peak, those with the highest ones.
const maxPeaks = 64

// PeakTimes returns when each process of a snapshot had its peak, and when each of its GPUs had
// most of what the peak is of: at most so many times, those of the highest, in their order.
func PeakTimes(s *Snapshot, most int) []uint64 {
	var list []highest
	torch := map[int]bool{}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != CPUDevice && t.Peak > 0 {
			torch[t.Process] = true
			list = append(list, highest{t.Peak, t.PeakTime})
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		list = append(list, highest{p.PeakBytes, p.PeakTime})
		for k := range p.Totals {
			if t := &p.Totals[k]; t.Device >= 0 && t.Kind.Owned() && !torch[i] {
				list = append(list, highest{t.PeakBytes, t.PeakTime})
			}
		}
	}
	list = slices.DeleteFunc(list, func(h highest) bool { return h.bytes == 0 })
	slices.SortStableFunc(list, func(a, b highest) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.time, b.time))
	})
	var times []uint64
	for _, h := range list {
		if len(times) < most && !slices.Contains(times, h.time) {
			times = append(times, h.time)
		}
	}
	slices.Sort(times)
	return times
}

// highestOf returns a process's peak: the kernel half sees every block, the books a sample.
func (p *torch) highestOf() highest {
	most := p.peak.highest
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && p.peak.torch {
			most.reach(t.peak.bytes, t.peak.time)
		}
	}
	return most
}

// onOneGPU reports whether the peak leaves out what a process had on further GPUs.
func (p *torch) onOneGPU() bool {
	if !p.peak.torch {
		return p.peak.more
	}
	gpus := 0
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && t.peak.bytes > 0 {
			gpus++
		}
	}
	return gpus > 1
}

// measured returns the GPU memory of a process on all GPUs: its tensors where PyTorch reports them,
// because segments follow late or never shrink, else what it allocated.
func (p *torch) measured() (bytes uint64) {
	torch := false
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && t.peak.bytes > 0 {
			torch = true
			bytes += t.now.allocated
		}
	}
	for i := range p.totals {
		if t := &p.totals[i]; !torch && t.Device == allDevices && t.Kind.Owned() {
			bytes += t.LiveBytes
		}
	}
	return bytes
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
