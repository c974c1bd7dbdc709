// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// addOwners sets the owners of a site in a snapshot.
func (v *processView) addOwners(out *Site, site siteKey) {
	for _, o := range v.owners[site] {
		switch {
		case o.process == nil || len(out.Owners) == maxOwners:
			out.MoreOwners = true
		default:
			if of := v.all.of[o.process]; of != nil {
				out.Owners = append(out.Owners, Owner{of.index, o.stack, o.api})
			}
		}
	}
}

// asleepOn takes sleeping tensors out of the parts of one device, before memory from before the
// attach is derived from them. In ranges before the next BlockList, the tensors that do not fit the
// segments are asleep.
func (v *processView) asleepOn(t *tensors, out *Tensors, segment *segmentSum, here func(device int32) bool) {
	if !v.asleep.seen || t.now.reserved == 0 {
		return
	}
	sum := v.asleep.on(t, here)
	out.Reserved = uint64(max(int64(out.Reserved)+sum.reserved, 0))
	out.Asleep = min(sum.inside, out.LiveBytes)
	segment.inside = min(minus(out.LiveBytes, t.outside+out.Asleep), segment.bytes)
	out.Asleep += min(minus(out.LiveBytes, out.Asleep+t.outside+segment.bytes), sum.fresh)
}

// olderReserved returns what is left of segments from before the attach that have memory.
func (v *processView) olderReserved(t *tensors, out *Tensors, outside uint64, here func(device int32) bool) uint64 {
	reserved := minus(out.Reserved, out.Segments)
	if !v.asleep.seen || !t.first.seen {
		return reserved
	}
	sum := v.asleep.on(t, here)
	reserved = min(reserved, minus(v.olderSegments(&t.first, here), sum.lost))
	missing := min(minus(out.Older+outside, reserved), out.Older)
	out.OlderAsleep = min(missing, sum.older)
	if sum.lost > 0 {
		out.OlderMoved = missing - out.OlderAsleep
	}
	return reserved
}

// asleep divides the sleeping bytes among the sites whose sampled tensors sleep.
func (v *view) asleep(sites *siteList) {
	type weight struct{ asleep, live float64 }
	weights := map[int]weight{}
	for _, x := range v.list {
		if len(x.process.asleep.ranges) == 0 {
			continue
		}
		x.withSites(func(all []*site) {
			for _, s := range all {
				if at, ok := sites.at[x.shownKey(s.siteKey)]; ok && s.kind == Tensor {
					p, w := x.inclusion(int(s.class)), weights[at]
					weights[at] = weight{w.asleep + float64(min(s.inside, s.liveBytes))/p, w.live + float64(s.liveBytes)/p}
				}
			}
		})
	}
	if len(weights) == 0 {
		return
	}
	on := map[processDevice][]int{}
	for at := range sites.list {
		if x := &sites.list[at]; x.Kind == Tensor && weights[at].asleep > 0 {
			on[processDevice{x.Process, x.Device}] = append(on[processDevice{x.Process, x.Device}], at)
		}
	}
	for i := range v.s.Tensors {
		t := &v.s.Tensors[i]
		if t.Asleep == 0 {
			continue
		}
		var list []*Site
		var parts []uint64
		for _, at := range on[processDevice{t.Process, t.Device}] {
			x := &sites.list[at]
			if w := weights[at]; w.asleep > 0 {
				list = append(list, x)
				parts = append(parts, uint64(float64(x.LiveBytes)*(w.asleep/w.live)))
			}
		}
		parts, _ = apportion(t.Asleep, parts)
		for k := range parts {
			list[k].Asleep = min(parts[k], list[k].LiveBytes)
		}
	}
}

// objects adds the driver objects of all processes in the snapshot.
func (v *view) objects() {
	for _, p := range v.list {
		for _, s := range p.process.objects.sites {
			if s.device == UnknownDevice {
				s.device = p.only
			}
			v.s.Objects = append(v.s.Objects, Object{
				Process: p.index, Stack: s.stack, API: s.api, Kind: s.kind, Device: s.device,
				Live: s.live, Made: s.made, Bytes: s.bytes, Before: s.before, Evicted: s.evicted, Crowded: s.crowded,
			})
		}
	}
	slices.SortFunc(v.s.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Live, a.Live), cmp.Compare(b.Made, a.Made),
			cmp.Compare(a.Device, b.Device), cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.API, b.API))
	})
}

// newestRecent returns the number of the process's newest finest window, given its sites; 0 if it
// does not run for as long as the shortest horizon is.
func (v *processView) newestRecent(sites []*site) uint64 {
	newest := uint64(0)
	for _, s := range sites {
		if x, ok := s.track.NewestRecent(); ok {
			newest = max(newest, x)
		}
	}
	if !growth.Reaches(newest, minus(v.Begin, v.all.s.Begin)) {
		return 0
	}
	return newest
}

// addHolders divides what lives of a site by holder, as it was divided at the latest walk.
func (p *process) addHolders(out *Site, key siteKey) {
	if p.walks == nil || out.LiveBytes == 0 {
		return
	}
	if held := p.walks.sites[key]; held != nil {
		p.walks.divide(out, held)
	}
}

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

// replaceWalks is AddWalk for a process with that index in the snapshot.
func (p *process) replaceWalks(s *Snapshot, index int) {
	w := p.walks
	s.Walks = slices.DeleteFunc(s.Walks, func(x Walked) bool { return x.Process == index })
	list := w.list
	if w.open != nil && !slices.ContainsFunc(list, func(x Walked) bool { return x.Failure == "" }) {
		list = []Walked{{Time: w.open.time, Failure: WalkUnended}}
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
