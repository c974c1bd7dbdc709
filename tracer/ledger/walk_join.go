// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// joined is a walk under construction.
type joined struct {
	l       *Ledger
	process uint32
	in      *Walk
	opened  *openWalk
	walked  Walked
	newer   []uint64 // by holder: bytes of blocks since the attach
	sites   map[siteKey]*heldSite
	freed   map[siteKey]uint64 // weights of what was freed since the walk began
	to      map[uint32]uint32  // by index of a holder in the walk: its index in walked.Held
}

// join finds the sites of a walk's storages by address, and fits their bytes to the allocators'
// totals.
func (l *Ledger) join(process uint32, in *Walk, opened *openWalk) joined {
	j := joined{l: l, process: process, in: in, opened: opened, sites: map[siteKey]*heldSite{}, freed: map[siteKey]uint64{}, newer: make([]uint64, len(in.Holders))}
	j.walked = Walked{Time: in.Time, Took: in.Took, Failure: in.Failure, Problems: slices.Clone(in.Problems)}
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
	for i := range j.walked.Held { // without an allocator's totals, nothing shows what is older
		h := &j.walked.Held[i]
		if h.Bytes = h.Older + j.newer[i]; !slices.ContainsFunc(opened.allocators, func(t WalkTotals) bool { return t.Device == h.Device }) {
			h.Older = 0
		}
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
	bytes, space := s.Block, Blocks
	switch {
	case s.Allocation:
		bytes, space = s.Bytes, Addresses
		h.Driver += min(bytes, maxTensors-min(h.Driver, maxTensors))
	case s.Block == 0:
		bytes = (max(s.Bytes, 1) + blockStep - 1) &^ (blockStep - 1)
		h.Older += min(bytes, maxTensors-min(h.Older, maxTensors))
	default:
		j.newer[s.Holder] += min(bytes, maxTensors-min(j.newer[s.Holder], maxTensors))
	}
	h.Storages++
	if s.InMotion {
		h.InMotion++
	}
	key, weight, size, ok := j.find(liveKey{s.Address, j.process, space})
	if !ok || size != bytes { // another block took the address meanwhile
		return
	}
	held := j.sites[key]
	if held == nil {
		held = &heldSite{live: j.freed[key], parts: map[uint32]uint64{}}
		if n, ok := j.l.siteOf[key]; ok {
			held.live += min(j.l.sites[n].liveBytes, maxTensors)
		}
		j.sites[key] = held
	}
	weight = min(weight, maxTensors-held.held)
	held.held += weight
	held.parts[s.Holder] += weight
}

// find returns the site of an allocation that lived when the walk began, or lives now, its weight
// there, and its size.
func (j *joined) find(key liveKey) (of siteKey, weight, size uint64, ok bool) {
	if f, ok := j.opened.freed[key]; ok {
		return f.site, f.weight, f.size, true
	}
	n, ok := j.l.live[key]
	if !ok {
		return siteKey{}, 0, 0, false
	}
	b := j.l.entries.at(n)
	s := &j.l.sites[b.site]
	return s.siteKey, weightOf(s, b), b.size, s.kind != aliased
}

// fit makes the storages of an allocator at most as many bytes as it has given out. Storages beyond
// that were freed while the walk read them.
func (j *joined) fit(totals WalkTotals) {
	newest := totals.Allocated - totals.Older
	var at []int
	var older, newer []uint64
	for i := range j.walked.Held {
		if h := &j.walked.Held[i]; h.Device == totals.Device {
			at = append(at, i)
			older, newer = append(older, h.Older), append(newer, j.newer[i])
		}
	}
	older, totals.HeldOlder, totals.ExcessOlder = fitTo(older, totals.Older)
	var heldNewer, excess uint64
	newer, heldNewer, excess = fitTo(newer, newest)
	totals.Held, totals.Excess = totals.HeldOlder+heldNewer, excess+totals.ExcessOlder
	for k, i := range at {
		h := &j.walked.Held[i]
		h.Older = older[k]
		h.Bytes = older[k] + newer[k]
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
	for _, s := range j.sites {
		parts := make(map[uint32]uint64, len(s.parts))
		for holder, bytes := range s.parts {
			parts[to[holder]] += bytes
		}
		s.parts = parts
	}
}
