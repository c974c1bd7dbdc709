// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// A walk sees memory that stays, and memory that the running step takes and gives back while it is
// read: together they are more than the allocator ever had at once. The rank of a storage is how
// sure it is that it was there when the walk began, the surest first.
const (
	foundTwice  = iota // older than the attach: the walk before found it at the same address, which no event gave out since
	foundStill         // neither it nor its holder changed while it was read
	foundMoving        // one of them did
	foundRanks
)

// keepOlder keeps what a walk found of memory from before the attach in place of what the walk
// before found.
func (p *process) keepOlder(j *joined) {
	kept := len(p.walks.list[len(p.walks.list)-1].Held)
	set := olderSet{held: make([]rankedBytes, kept), gone: make([]rankedBytes, kept)}
	for from, to := range j.to {
		if int(to) < kept {
			set.held[to] = j.older[from]
		}
	}
	for _, b := range j.olderBlocks {
		if to, ok := j.to[b.holder]; ok && int(to) < kept && p.heldBlocks+len(set.blocks) < maxHeldBlocks {
			b.holder = to
			set.blocks = append(set.blocks, b)
		}
	}
	slices.SortFunc(set.blocks, func(a, b olderBlock) int { return cmp.Compare(a.address, b.address) })
	set.blocks = slices.Clip(slices.CompactFunc(set.blocks, func(a, b olderBlock) bool { return a.address == b.address }))
	p.heldBlocks += len(set.blocks)
	p.walks.older = set
}

// fitRanks makes parts add up to at most a total: what is less sure makes room for what is surer,
// and, of what is as sure, what comes and goes in a step for what lasts. It returns their sum, and
// by how much they exceeded the total.
func fitRanks(parts []rankedBytes, lasting []bool, total uint64) (fitted []uint64, sum, excess uint64) {
	fitted = make([]uint64, len(parts))
	bytes := make([]uint64, len(parts))
	for rank := range foundRanks {
		for _, lasts := range []bool{true, false} {
			for i := range parts {
				if bytes[i] = 0; lasting[i] == lasts {
					bytes[i] = parts[i][rank]
				}
			}
			some, n, over := fitTo(bytes, total-sum)
			for i := range some {
				fitted[i] += some[i]
			}
			sum, excess = sum+n, excess+over
		}
	}
	return fitted, sum, excess
}

// Lasts reports whether most of what a holder keeps stays from step to step: weights, an
// optimizer's state or buffers.
func (h *Held) Lasts() bool {
	return h.Parts[modelpart.Weight]+h.Parts[modelpart.State]+h.Parts[modelpart.Buffer] > h.Parts.Sum()/2
}

// ranks returns what a walk took for memory from before the attach, by index in its Held: by rank
// if it is the latest.
func (w *walks) ranks(x *Walked, latest bool) []rankedBytes {
	if latest && len(w.older.held) >= len(x.Held) {
		return w.older.held[:len(x.Held)]
	}
	list := make([]rankedBytes, len(x.Held))
	for i := range x.Held {
		list[i][foundStill] = x.Held[i].Older
	}
	return list
}

// shown returns a walk as a snapshot has it. An allocator that had not reported when the walk began
// gets its totals from its first report since, which has what it held at the attach; before that
// report, what the walk found is all that is known of it.
func (p *process) shown(x Walked, latest bool) Walked {
	w := p.walks
	var waiting []int32
	for i := range x.Held {
		if h := &x.Held[i]; h.Older > 0 && totalsOn(x.Allocators, h.Device) == nil && !slices.Contains(waiting, h.Device) {
			waiting = append(waiting, h.Device)
		}
	}
	if len(waiting) == 0 {
		return x
	}
	p.spend(len(waiting) * len(x.Held))
	slices.Sort(waiting)
	older := w.ranks(&x, latest)
	j := joined{walked: x, older: older, newer: make([]rankedBytes, len(x.Held))}
	j.walked.Held, j.walked.Allocators = slices.Clone(x.Held), slices.Clone(x.Allocators)
	for i := range x.Held {
		h := &x.Held[i]
		j.newer[i][foundStill] = minus(h.Bytes, h.Older+h.Driver)
		j.walked.Held[i].Bytes = minus(h.Bytes, h.Driver)
	}
	for _, device := range waiting {
		j.fit(p.firstTotals(device, x.Held))
	}
	for i := range x.Held {
		j.walked.Held[i].Bytes += x.Held[i].Driver
	}
	return j.walked
}

func totalsOn(list []WalkTotals, device int32) *WalkTotals {
	for i := range list {
		if list[i].Device == device {
			return &list[i]
		}
	}
	return nil
}

// divideOlder divides, in a snapshot, a process's memory from before the attach among the holders
// of its latest walk, and counts what no allocator reported as tensors of its baseline.
func (p *process) divideOlder(s *Snapshot, index int) {
	w := p.walks
	x := s.LatestWalk(index)
	if x == nil || x.Failure != "" {
		return
	}
	held := w.ranks(x, true)
	x.Left = make([]uint64, len(x.Held))
	for i := range x.Allocators {
		t := &x.Allocators[i]
		live := s.placeOlder(index, t)
		var at []int
		var parts []rankedBytes
		var lasting []bool
		for k := range x.Held {
			if x.Held[k].Device != t.Device {
				continue
			}
			part := held[k]
			for rank := range part {
				if k < len(w.older.gone) {
					part[rank] = minus(part[rank], w.older.gone[k][rank])
				}
			}
			at, parts, lasting = append(at, k), append(parts, part), append(lasting, x.Held[k].Lasts())
		}
		fitted, _, _ := fitRanks(parts, lasting, live)
		for k, i := range at {
			x.Left[i] = fitted[k]
		}
	}
}

func (b *rankedBytes) add(bytes uint64, rank uint8) {
	b[rank] += min(bytes, maxTensors-b[rank])
}

func rankOf(inMotion bool) uint8 {
	if inMotion {
		return foundMoving
	}
	return foundStill
}

func (b *rankedBytes) sum() (sum uint64) {
	for _, n := range b {
		sum += min(n, maxTensors-sum)
	}
	return sum
}
