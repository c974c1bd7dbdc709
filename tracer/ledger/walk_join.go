// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// joined is a walk under construction.
type joined struct {
	*process
	in       *Walk
	opened   *openWalk
	walked   Walked
	newer    []rankedBytes // by holder: bytes of blocks since the attach
	older    []rankedBytes // by holder: bytes of storages that seem older
	segments []extent      // of PyTorch, since the attach
	heldBy   map[siteKey]*heldSite
	freed    map[siteKey]uint64 // weights of what was freed since the walk began
	to       map[uint32]uint32  // by index of a holder in the walk: its index in walked.Held

	olderBlocks []olderBlock // with holders as in the walk
}

// join finds the sites of a walk's storages by address, and fits their bytes to the allocators'
// totals.
func (p *process) join(in *Walk, opened *openWalk) joined {
	j := joined{process: p, in: in, opened: opened, heldBy: map[siteKey]*heldSite{}, freed: map[siteKey]uint64{}, newer: make([]rankedBytes, len(in.Holders)), older: make([]rankedBytes, len(in.Holders))}
	for _, x := range p.extents() {
		if p.sites[x.site].segment {
			j.segments = append(j.segments, x)
		}
	}
	j.walked = Walked{Time: in.Time, Took: in.Took, Failure: in.Failure, Problems: slices.Clone(in.Problems), Waste: slices.Clone(in.Waste[:min(len(in.Waste), MaxWaste)]), Saved: slices.Clone(in.Saved[:min(len(in.Saved), MaxSaved)])}
	for _, f := range opened.freed {
		j.freed[f.site] += min(f.weight, maxTensors-min(j.freed[f.site], maxTensors))
	}
	for i := range in.Holders {
		h := in.Holders[i]
		h.Device = tensorDevice(h.Device)
		j.walked.Held = append(j.walked.Held, Held{Holder: h})
	}
	for i := range in.Storages {
		if s := &in.Storages[i]; int(s.Holder) < len(in.Holders) && s.Bytes <= maxSize && s.Block <= maxSize {
			j.add(s)
		}
	}
	for i := range j.walked.Held {
		h := &j.walked.Held[i]
		if p.isNameless(h.Device) {
			j.older[i] = rankedBytes{}
		} else {
			h.Older = j.older[i].sum()
		}
		h.Bytes = h.Older + j.newer[i].sum()
	}
	for _, totals := range opened.allocators {
		j.fit(totals)
	}
	for i := range j.walked.Held {
		j.walked.Held[i].Bytes += j.walked.Held[i].Driver
	}
	j.sort()
	return j
}

// add sums one storage, and notes its site if the books have the block.
func (j *joined) add(s *Storage) {
	h := &j.walked.Held[s.Holder]
	var bytes uint64
	space := Blocks
	switch {
	case s.Allocation:
		bytes, space = s.Bytes, Addresses
		h.Driver += min(bytes, maxTensors-min(h.Driver, maxTensors))
	case s.Block == 0 && !j.givenOut(s):
		bytes = blockOf(s)
		j.addOlder(s, bytes)
	default:
		bytes = cmp.Or(s.Block, blockOf(s))
		j.newer[s.Holder].add(bytes, rankOf(s.InMotion))
	}
	h.Storages++
	if s.InMotion {
		h.InMotion++
	}
	key, weight, size, ok := j.find(liveKey{s.Address, space})
	if !ok || size != bytes { // another block took the address meanwhile
		return
	}
	held := j.heldBy[key]
	if held == nil {
		held = &heldSite{live: j.freed[key], parts: map[uint32]uint64{}}
		if n, ok := j.siteOf[key]; ok {
			held.live += min(j.process.sites[n].liveBytes, maxTensors)
		}
		j.heldBy[key] = held
	}
	weight = min(weight, maxTensors-held.held)
	held.held += weight
	held.parts[s.Holder] += weight
}

// blockOf returns the size of the block of a storage whose block is unknown.
func blockOf(s *Storage) uint64 { return (max(s.Bytes, 1) + blockStep - 1) &^ (blockStep - 1) }

// givenOut reports whether a storage whose block is unknown was allocated since the attach all the
// same: an event gave out its address, it lies in a segment that is no older, or it is in motion at
// an address at which the walk before found nothing.
func (j *joined) givenOut(s *Storage) bool {
	set, address := &j.walks.older, s.Address
	key := liveKey{address, Blocks}
	_, given := j.opened.given[address]
	_, freed := j.opened.freed[key]
	_, live := j.live[key]
	before := set.find(address)
	if given || freed || live || j.fromDriver(address) {
		return true
	}
	if j.allocator.olderAt(address) != 0 {
		return false
	}
	if before != nil && before.gone || before == nil && s.InMotion && len(set.blocks) > 0 {
		return true
	}
	i, _ := slices.BinarySearchFunc(j.segments, address, func(x extent, address uint64) int {
		if x.end <= address {
			return -1
		}
		return 1
	})
	return i < len(j.segments) && j.segments[i].start <= address
}

// fromDriver reports whether the driver gave out an address since the attach, as for PyTorch's
// backend cudaMallocAsync.
func (j *joined) fromDriver(address uint64) bool {
	key := liveKey{address, Addresses}
	_, freed := j.opened.freed[key]
	_, live := j.live[key]
	return freed || live
}

// addOlder sums a storage that seems to be older than the attach.
func (j *joined) addOlder(s *Storage, bytes uint64) {
	rank := rankOf(s.InMotion)
	if size := j.allocator.olderAt(s.Address); size != 0 {
		bytes, rank = size, foundTwice
	} else if before := j.walks.older.find(s.Address); before != nil && before.size == bytes {
		rank = foundTwice
	}
	j.older[s.Holder].add(bytes, rank)
	j.olderBlocks = append(j.olderBlocks, olderBlock{address: s.Address, size: bytes, holder: s.Holder, rank: rank})
}

// find returns the site of an allocation that lived when the walk began, or lives now, its weight
// there, and its size.
func (j *joined) find(key liveKey) (of siteKey, weight, size uint64, ok bool) {
	if f, ok := j.opened.freed[key]; ok {
		return f.site, f.weight, f.size, true
	}
	n, ok := j.live[key]
	if !ok {
		return siteKey{}, 0, 0, false
	}
	b := j.entries.at(n)
	s := j.process.sites[b.site]
	if s.kind == Tensor && j.process.tensors[s.total].open { // by now the address may be another block's
		return siteKey{}, 0, 0, false
	}
	return s.siteKey, weightOf(s, b), b.size, s.kind != aliased
}

// fit makes the storages of an allocator at most as many bytes as it has given out. Storages beyond
// that were freed while the walk read them.
func (j *joined) fit(totals WalkTotals) {
	newest := totals.Allocated - totals.Older
	var at []int
	var older, newer []rankedBytes
	var lasting []bool
	for i := range j.walked.Held {
		if h := &j.walked.Held[i]; h.Device == totals.Device {
			at = append(at, i)
			older, newer, lasting = append(older, j.older[i]), append(newer, j.newer[i]), append(lasting, h.Lasts())
		}
	}
	olderFit, heldOlder, excessOlder := fitRanks(older, lasting, totals.Older)
	newerFit, heldNewer, excess := fitRanks(newer, lasting, newest)
	totals.HeldOlder, totals.ExcessOlder = heldOlder, excessOlder
	totals.Held, totals.Excess = totals.HeldOlder+heldNewer, excess+totals.ExcessOlder
	for k, i := range at {
		h := &j.walked.Held[i]
		h.Older = olderFit[k]
		h.Bytes = olderFit[k] + newerFit[k]
	}
	j.walked.Allocators = append(j.walked.Allocators, totals)
}

// fitTo scales parts down so that they add up to at most a total, and returns their sum and by how
// much they exceeded it.
func fitTo(parts []uint64, total uint64) (fitted []uint64, sum, excess uint64) {
	for i, n := range parts {
		parts[i] = min(n, maxTensors-sum)
		sum += parts[i]
	}
	if sum <= total {
		return parts, sum, 0
	}
	fitted, _ = apportion(total, parts)
	return fitted, total, sum - total
}

// sort sorts holders by bytes, and removes those that keep nothing.
func (j *joined) sort() {
	order := make([]int, 0, len(j.walked.Held))
	for i := range j.walked.Held {
		if j.walked.Held[i].Storages > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &j.walked.Held[a], &j.walked.Held[b]
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Device, y.Device), cmp.Compare(x.Path, y.Path), cmp.Compare(a, b))
	})
	to := make(map[uint32]uint32, len(order))
	held := make([]Held, len(order))
	for k, i := range order {
		held[k], to[uint32(i)] = j.walked.Held[i], uint32(k)
	}
	j.walked.Held, j.to = held, to
	for _, s := range j.heldBy {
		parts := make(map[uint32]uint64, len(s.parts))
		for holder, bytes := range s.parts {
			parts[to[holder]] += bytes
		}
		s.parts = parts
	}
}
