// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// Untraced is a time in which no report of a tensor was seen: a block that lived at From may have
// been freed, and its address given out again. Blocks that are not proven to have stayed count as
// freed at From. It comes after a TensorReading of From; the next one has the blocks that stayed
// and no others.
type Untraced struct {
	PID      uint32 // of the process; 0: all
	From, To uint64
	// Open is set while it goes on. Then the blocks of allocators that are not in Stayed are those
	// of From, whatever became of them; what else the next TensorReading has allocated is
	// Tensors.Untraced.
	Open   bool
	Stayed []Stayed // at most one of each allocator; unless Open, those of the others may all be gone
}

// Stayed bounds what one allocator may have freed in a time in which it was not traced.
type Stayed struct {
	PID    uint32
	Device int32
	// Size in bytes of the largest block that may have been freed, of small and of large ones. 0:
	// none was; Unknown: any may have been.
	Small, Large uint64
}

const (
	// Unknown is no bound.
	Unknown uint64 = math.MaxUint64

	// LargestSmall is the size of the largest small block: kSmallSize in
	// c10/cuda/CUDACachingAllocator.cpp (PyTorch 1.13 to 2.11). Larger requests go to other pools.
	LargestSmall = 1 << 20
)

// Has reports whether a block of a size was not freed.
func (s *Stayed) Has(size uint64) bool {
	if size <= LargestSmall {
		return size > s.Small
	}
	return size > s.Large
}

// freed returns how many bytes may have been freed.
func (s *Stayed) freed() uint64 { return s.Small + min(s.Large, Unknown-s.Small) }

func (in Untraced) tell(l *Ledger) {
	l.eachAlive(func(p *process) {
		if !p.purged && (in.PID == 0 || in.PID == p.PID) {
			p.loseTensors(&in)
		}
	})
}

// of returns what is known of an allocator, and whether its blocks are left as they are.
func (in *Untraced) of(pid uint32, device int32) (s Stayed, held bool) {
	for _, s := range in.Stayed {
		if s.PID == pid && s.Device == device {
			return s, false
		}
	}
	if in.Open {
		return Stayed{}, true
	}
	return Stayed{Small: Unknown, Large: Unknown}, false
}

// loseTensors ends the blocks that may have been freed. Their addresses must not keep the stacks of
// blocks that have gone.
func (p *process) loseTensors(in *Untraced) {
	p.spend(len(in.Stayed) * len(p.tensors))
	stayed, ending := make([]Stayed, len(p.tensors)), map[*tensors]bool{}
	for i := range p.tensors {
		t, held := &p.tensors[i], false
		stayed[i], held = in.of(p.PID, t.device)
		p.pause(t, in)
		t.traced, t.untraced, t.open = minus(t.older(), stayed[i].freed()), true, in.Open
		if !held {
			ending[t] = true
		}
		if !held && stayed[i].freed() > 0 {
			t.lost = in.To
		}
	}
	if len(ending) > 0 {
		p.endUnproven(in, stayed)
	}
	for t := range ending {
		t.reading.endBlocks()
		t.since, t.first = sampleSince{}, firstReport{}
		t.now.live, t.now.begun, t.now.liveKnown = 0, false, t.now.known
	}
}

// endUnproven ends the blocks of the sample that may have been freed, by device.
func (p *process) endUnproven(in *Untraced, stayed []Stayed) {
	p.spend(len(p.live))
	extents := p.extents()
	var keys []liveKey
	for key, n := range p.live {
		if key.space != Blocks {
			continue
		}
		b := p.entries.at(n)
		s := &stayed[p.sites[b.site].total]
		if *s != (Stayed{}) && (!s.Has(b.size) || isYounger(extents, b.address, in.From)) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b liveKey) int { return cmp.Compare(a.address, b.address) })
	for _, key := range keys {
		latest := p.tensors[p.sites[p.entries.at(p.live[key]).site].total].now.time
		lost := func(x *growth.Presumed, begin, birth, time, size uint64) {
			x.Lose(begin, birth, min(cmp.Or(latest, time), time), time, size)
		}
		if isYounger(extents, key.address, in.From) {
			lost = (*growth.Presumed).Remove
		}
		p.dropTensor(key, p.live[key], in.From, lost)
	}
}

// older returns the bytes that were allocated before the attach, at the newest report.
func (t *tensors) older() uint64 {
	live := t.now.live
	if !t.now.liveKnown {
		live = t.reading.live.bytes
	}
	older := minus(t.now.allocated, live)
	if t.untraced {
		older = min(older, t.traced)
	}
	return older
}

// isYounger reports whether the memory of a block was taken from the driver after a time: then it
// is not the block's any more. The driver's probes stay, so this is also known of a process that
// has set its counters back.
func isYounger(extents []extent, address, time uint64) bool {
	i, _ := slices.BinarySearchFunc(extents, address, func(x extent, address uint64) int {
		if x.end <= address {
			return -1
		}
		return 1
	})
	return i < len(extents) && extents[i].start <= address && extents[i].time > time
}

// endBlocks counts live blocks as freed.
func (r *tensorReading) endBlocks() {
	r.live, r.freed = count{}, count{}
	for i := range r.classes {
		k := &r.classes[i]
		k.freed.take(&k.live)
		k.live = count{}
		r.freed.take(&k.freed)
	}
}

// Phase is part of Tensors.
type Phase = growth.Phase

// lose is how a block leaves a Presumed that nobody saw to be freed.
type lose func(x *growth.Presumed, begin, birth, time, size uint64)

// presume returns what is presumed to live of a site.
func (s *site) presume() *growth.Presumed {
	if s.presumed == nil {
		s.presumed = growth.NewPresumed()
	}
	return s.presumed
}

// pause ends the phase in which an allocator was traced, or begins the next one.
func (p *process) pause(t *tensors, in *Untraced) {
	ended := t.phases.End(in.From)
	if !t.untraced { // the first time: what lives now is presumed to
		p.eachOf(t, func(s *site) {
			x := s.presume()
			for n := s.first; n != 0; n = p.entries.at(n).next {
				b := p.entries.at(n)
				x.Add(p.options.Begin, b.time, weightOf(s, b))
				p.spend(1)
			}
		})
	}
	if ended {
		p.eachOf(t, func(s *site) {
			if s.presumed != nil {
				s.presumed.EndPhase()
			}
		})
	}
	if !in.Open {
		t.phases.Reach(in.To, t.now.allocated)
	}
}

// eachOf calls do with each site of an allocator.
func (p *process) eachOf(t *tensors, do func(*site)) {
	p.spend(len(p.sites))
	for s := range p.all() {
		if s.kind == Tensor && p.sumOf(s) == t {
			do(s)
		}
	}
}

// fillPresumed sets what is presumed to live of a size class of the sample, which has allocations
// with a probability.
func (s *site) fillPresumed(begin, time uint64, out *Site, probability float64) {
	if s.presumed == nil {
		return
	}
	v, ok := s.presumed.View(begin, time, make([]Cohort, CohortLen))
	if !ok {
		return
	}
	x := &Site{Process: out.Process, Device: out.Device, Kind: Tensor, Window: v.Window, FirstWindow: v.FirstWindow, Cohorts: v.Cohorts}
	for i := range x.Cohorts {
		w := &x.Cohorts[i]
		for _, n := range [...]*uint64{&w.AllocObjects, &w.AllocBytes, &w.LiveObjects, &w.LiveBytes, &w.Floor, &w.Mean, &w.High} {
			*n = uint64(min(float64(*n)/probability, maxTensors))
		}
		x.LiveBytes += w.LiveBytes
	}
	out.Presumed = x
}
