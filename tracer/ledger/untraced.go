// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"
)

// Untraced is a time in which no report of a tensor was seen: a block that lived at From may have been freed, and its
// address given out again. Blocks that are not proven to have stayed count as freed at From. It comes
// after a TensorReading of From; the next one has the blocks that stayed and no others.
type Untraced struct {
	From, To uint64
	Stayed   []Stayed // at most one of each allocator; those of the others may all be gone
}

// Stayed bounds what one allocator may have freed in a time in which it was not traced.
type Stayed struct {
	PID    uint32
	Device int32
	// Size in bytes of the largest block that may have been freed, of small and of large ones. 0: none was; Unknown:
	// any may have been.
	Small, Large uint64
}

const (
	// Unknown is no bound.
	Unknown uint64 = math.MaxUint64

	// largestSmall is the size of the largest small block: kSmallSize in c10/cuda/CUDACachingAllocator.cpp
	// (PyTorch 1.13 to 2.11). Larger requests go to other pools.
	largestSmall = 1 << 20
)

// Has reports whether a block of a size was not freed.
func (s *Stayed) Has(size uint64) bool {
	if size <= largestSmall {
		return size > s.Small
	}
	return size > s.Large
}

// freed returns how many bytes may have been freed.
func (s *Stayed) freed() uint64 { return s.Small + min(s.Large, Unknown-s.Small) }

func (in Untraced) tell(l *Ledger) {
	l.eachAlive(func(p *process) {
		if !p.purged {
			p.loseTensors(&in)
		}
	})
}

// of returns what is known of an allocator.
func (in *Untraced) of(pid uint32, device int32) Stayed {
	for _, s := range in.Stayed {
		if s.PID == pid && s.Device == device {
			return s
		}
	}
	return Stayed{PID: pid, Device: device, Small: Unknown, Large: Unknown}
}

// loseTensors ends the blocks that may have been freed. Their addresses must not keep the stacks of blocks that have
// gone.
func (p *process) loseTensors(in *Untraced) {
	p.spend(len(p.live) + len(in.Stayed)*len(p.tensors))
	stayed := make([]Stayed, len(p.tensors))
	for i := range p.tensors {
		stayed[i] = in.of(p.PID, p.tensors[i].device)
	}
	extents := p.extents()
	var keys []liveKey
	for key, n := range p.live {
		if key.space != Blocks {
			continue
		}
		b := p.entries.at(n)
		if s := p.sites[b.site]; !stayed[s.total].Has(b.size) || isYounger(extents, b.address, in.From) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b liveKey) int { return cmp.Compare(a.address, b.address) })
	for _, key := range keys {
		p.dropTensor(key, p.live[key], in.From)
	}
	for i := range p.tensors {
		t, s := &p.tensors[i], &stayed[i]
		older := t.older()
		t.untraced, t.traced = true, minus(older, s.freed())
		t.reading.endBlocks()
		t.since, t.first = sampleSince{}, firstReport{}
		t.now.live, t.now.begun, t.now.liveKnown = 0, false, t.now.known
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

// isYounger reports whether the memory of a block was taken from the driver after a time: then it is not the block's any
// more. The driver's probes stay, so this is also known of a process that has set its counters back.
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
