// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// walks adds the walks to a snapshot.
func (v *view) walks() {
	for _, p := range v.list {
		if p.process.walks == nil {
			continue
		}
		list := p.process.walks.list
		for i := range list {
			w := p.shown(list[i], i == len(list)-1) // its lists do not change any more
			w.Process = p.index
			v.s.Walks = append(v.s.Walks, w)
		}
	}
	for _, p := range v.list {
		if p.process.walks != nil {
			p.divideOlder(v.s, p.index)
		}
	}
}

// olderOfWalks adds only what walks know of memory that no allocator reported.
func (v *view) olderOfWalks() {
	for _, p := range v.list {
		if p.process.walks == nil || len(p.process.walks.list) == 0 {
			continue
		}
		list := p.process.walks.list
		w := p.shown(list[len(list)-1], true)
		for i := range w.Allocators {
			v.s.placeOlder(p.index, &w.Allocators[i])
		}
	}
}

// divide gives a site the parts that its holders had.
func (w *walks) divide(out *Site, held *heldSite) {
	known := len(w.list[len(w.list)-1].Held)
	weights, at := []uint64{minus(held.live, held.held)}, []int{-1}
	for _, holder := range slices.Sorted(maps.Keys(held.parts)) {
		if int(holder) < known {
			weights, at = append(weights, held.parts[holder]), append(at, int(holder))
		}
	}
	shares, ok := apportion(out.LiveBytes, weights)
	if !ok {
		return
	}
	for i, bytes := range shares {
		if at[i] >= 0 && bytes > 0 {
			out.Holders = append(out.Holders, SiteHolder{at[i], bytes})
		}
	}
}

// mergeHolders adds the holders of another part of a site.
func (s *Site) mergeHolders(part *Site) {
	for _, h := range part.Holders {
		if i := slices.IndexFunc(s.Holders, func(x SiteHolder) bool { return x.Holder == h.Holder }); i >= 0 {
			s.Holders[i].Bytes += h.Bytes
		} else {
			s.Holders = append(s.Holders, h)
		}
	}
}

// notInTime is why a walk that has not ended found nothing.
const notInTime = "its memory was not read in time"

// replaceWalks is AddWalk for a process with that index in the snapshot.
func (p *process) replaceWalks(s *Snapshot, index int) {
	w := p.walks
	s.Walks = slices.DeleteFunc(s.Walks, func(x Walked) bool { return x.Process == index })
	list := w.list
	if w.open != nil && !slices.ContainsFunc(list, func(x Walked) bool { return x.Failure == "" }) {
		list = []Walked{{Time: w.open.time, Failure: notInTime}}
	}
	for i, x := range list {
		x = p.shown(x, i == len(list)-1)
		x.Process = index
		s.Walks = append(s.Walks, x)
	}
	slices.SortStableFunc(s.Walks, func(a, b Walked) int { return cmp.Compare(a.Process, b.Process) })
	from, to := s.balancesOf(index)
	for i := from; i < to; i++ {
		s.Balances[i].OlderTensors = 0
	}
	p.divideOlder(s, index)
	shown := map[siteKey]*heldSite{}
	for key, held := range w.sites {
		key.context, key.space, key.class = 0, 0, 0
		sum := shown[key]
		if sum == nil {
			sum = &heldSite{parts: map[uint32]uint64{}}
			shown[key] = sum
		}
		sum.add(held)
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Process != index {
			continue
		}
		x.Holders = nil
		if held := shown[siteKey{stack: x.Stack, device: x.Device, kind: x.Kind, api: x.API}]; held != nil {
			w.divide(x, held)
		}
	}
	for i := range s.Stuck {
		if s.Stuck[i].Process == index {
			s.Stuck[i].divide(p)
		}
	}
}

// add sums the holders of sites that are shown as one.
func (h *heldSite) add(part *heldSite) {
	h.live += min(part.live, maxTensors-min(h.live, maxTensors))
	for holder, bytes := range part.parts {
		bytes = min(bytes, maxTensors-h.held)
		h.parts[holder] += bytes
		h.held += bytes
	}
}
