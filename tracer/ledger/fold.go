// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// fold has sites lose their stack. Those that a snapshot shows as one are folded together.
func (p *process) fold(below float64) {
	p.spend(64 * len(p.sites))
	type shown struct {
		sites []*site
		live  float64 // bytes; of kind Tensor, as many as the sample stands for
	}
	sums, order := map[siteKey]*shown{}, []*shown(nil)
	for s := range p.all() {
		// a stack shows whether allocations are segments, and whose memory is imported
		if s.stack == 0 || s.kind == aliased || s.kind == Imported || s.segment || len(p.tensors) > 0 && s.mayBeSegment() {
			continue
		}
		key := siteKey{stack: s.stack, device: s.device, kind: s.kind, api: s.api}
		x := sums[key]
		if x == nil {
			x = &shown{}
			sums[key] = x
			order = append(order, x)
		}
		x.sites = append(x.sites, s)
		if s.kind == Tensor {
			x.live += float64(s.liveBytes) / p.inclusion(int(s.class))
		} else {
			x.live += float64(s.liveBytes)
		}
	}
	f := folder{process: p, into: map[uint32]uint32{}, keys: map[siteKey]siteKey{}, lists: map[*site][]uint32{}, groups: map[growth.Group]bool{}}
	for _, x := range order {
		if x.live < below {
			f.fold(x.sites)
		}
	}
	if len(f.keys) == 0 {
		return
	}
	f.finish()
	p.warnOf(fmt.Sprintf("process %d: memory was scarce, so that sites with little memory have lost their stack", p.PID))
}

// folder folds sites of one process.
type folder struct {
	*process
	into   map[uint32]uint32     // by number of a site that is no more: the site that has its figures
	keys   map[siteKey]siteKey   // of all folded sites: their keys before and after
	lists  map[*site][]uint32    // the first entries of lists to merge
	groups map[growth.Group]bool // that have changed
}

// to returns the number of the site that has the figures of a site.
func (f *folder) to(n uint32) uint32 {
	if b, ok := f.into[n]; ok {
		return b
	}
	return n
}

// fold takes the stack from sites. Those with common cohorts are folded together.
func (f *folder) fold(sites []*site) {
	groups, order := map[growth.Group][]*site{}, []growth.Group(nil)
	for _, s := range sites {
		c := s.track.Group()
		if groups[c] == nil {
			order = append(order, c)
		}
		groups[c] = append(groups[c], s)
	}
	for _, c := range order {
		f.foldGroup(groups[c], c)
	}
}

// bareKey returns the key of a site without its stack.
func (s *site) bareKey() siteKey {
	key := s.siteKey
	key.stack = 0
	return key
}

// bareSite returns the site that is the same without a stack, or nil.
func (f *folder) bareSite(s *site) *site {
	if n, ok := f.siteOf[s.bareKey()]; ok {
		return f.process.sites[n]
	}
	return nil
}

// foldGroup folds the sites that have the same cohorts.
func (f *folder) foldGroup(group []*site, c growth.Group) {
	to, ok := f.target(group)
	if !ok {
		return
	}
	if to != nil {
		growth.Merge(to, c, f.options.Begin)
	}
	for _, s := range group {
		f.keys[s.siteKey] = s.bareKey()
		f.Folded++
		f.stats.Folded++
		if b := f.bareSite(s); b != nil {
			f.join(b, s)
		} else {
			f.rename(s, to != nil)
		}
	}
	if first := group[0]; to == nil && first.kind == Tensor {
		f.classes[first.classKey()] = first.number
	}
}

// target returns the cohorts of the sites that the sites of a group become part of, nil if there
// are none yet. It returns false if the group must stay as it is.
func (f *folder) target(group []*site) (to growth.Group, ok bool) {
	if first := group[0]; first.kind == Tensor {
		like := site{siteKey: first.bareKey()}
		if n, ok := f.classes[like.classKey()]; ok {
			if b := f.process.sites[n]; b.isButForClass(&like) {
				to = b.track.Group()
			} else {
				return nil, false // another call has the key
			}
		}
	}
	need := 0 // places without a stack
	for _, s := range group {
		b := f.bareSite(s)
		switch {
		case b == nil:
			need++
		case b.segment || to != nil && b.track.Group() != to:
			return nil, false
		default:
			to = b.track.Group()
		}
	}
	return to, need == 0 || f.hasRoomFor(tableBare, need)
}

// join adds the figures of a site to another one, which is the same without a stack.
func (f *folder) join(to, s *site) {
	f.keep(to)
	f.keep(s)
	to.add(s)
	f.groups[to.track.Group()] = true
	if s.first != 0 {
		f.lists[to] = append(f.lists[to], s.first)
	}
	s.track.Leave()
	f.into[s.number] = to.number
	f.limiter.sites--
	if f.dropSite(s); !s.free {
		f.give(tableEver)
	}
}

// add adds the figures of a site that has lost its stack.
func (s *site) add(o *site) {
	s.liveObjects += o.liveObjects
	s.liveBytes += o.liveBytes
	s.allocObjects += o.allocObjects
	s.allocBytes += o.allocBytes
	s.liveSquares += o.liveSquares
	s.inside += o.inside
	s.peak.objects += o.peak.objects
	s.peak.bytes += o.peak.bytes
	if s.high != nil && o.high != nil {
		s.high.objects += o.high.objects
		s.high.bytes += o.high.bytes
	}
	s.early.objects += o.early.objects
	s.early.bytes += o.early.bytes
	s.evicted += o.evicted
	s.crowded += o.crowdedAfter()
	s.ended = max(s.ended, o.ended)
	s.track.Join(&o.track)
	s.presumed = nil
}

// crowdedAfter returns Site.Crowded of a site whose stack is lost.
func (s *site) crowdedAfter() uint64 {
	if s.kind == Tensor {
		return s.crowded + s.liveObjects + s.allocObjects // of freed ones
	}
	return s.crowded + s.allocObjects
}

// rename takes the stack from a site. If others without a stack have cohorts, it shares them.
func (f *folder) rename(s *site, shares bool) {
	delete(f.siteOf, s.siteKey)
	if key := s.classKey(); s.kind == Tensor && f.classes[key] == s.number {
		delete(f.classes, key)
	}
	s.crowded = s.crowdedAfter()
	s.siteKey = s.bareKey()
	f.siteOf[s.siteKey] = s.number
	if shares {
		s.track.Leave()
		s.track.Share(&f.process.sites[f.classes[s.classKey()]].track)
		f.groups[s.track.Group()] = true
	}
	if s.free || s.bare {
		return
	}
	f.give(tableSites)
	f.hold(tableBare)
	s.bare = true
}

// finish merges lists of entries, and changes the numbers and keys of sites everywhere else.
func (f *folder) finish() {
	for to, lists := range f.lists {
		f.mergeEntries(to, lists)
	}
	for s := range f.all() {
		if f.groups[s.track.Group()] {
			f.recount(s)
		}
	}
	f.renumber(f.to)
	f.renumberFrees(f.to)
	if f.walks != nil {
		f.walks.rename(f.keys)
	}
}

// mergeEntries makes one list by time of a site's entries and those of others.
func (f *folder) mergeEntries(s *site, lists []uint32) {
	var list []uint32
	for _, first := range append([]uint32{s.first}, lists...) {
		for n := first; n != 0; n = f.entries.at(n).next {
			list = append(list, n)
		}
	}
	f.spend(32 * len(list))
	slices.SortStableFunc(list, func(x, y uint32) int { return cmp.Compare(f.entries.at(x).time, f.entries.at(y).time) })
	for i, n := range list {
		e := f.entries.at(n)
		e.site, e.prev, e.next = s.number, 0, 0
		if i > 0 {
			e.prev = list[i-1]
		}
		if i+1 < len(list) {
			e.next = list[i+1]
		}
	}
	s.first, s.last = list[0], list[len(list)-1]
}

// rename changes the keys of sites.
func (w *walks) rename(keys map[siteKey]siteKey) {
	for key, held := range w.sites {
		to, ok := keys[key]
		if !ok {
			continue
		}
		delete(w.sites, key)
		sum := w.sites[to]
		if sum == nil {
			sum = &heldSite{parts: map[uint32]uint64{}}
			w.sites[to] = sum
		}
		sum.add(held)
	}
	if w.open == nil {
		return
	}
	for key, x := range w.open.freed {
		if to, ok := keys[x.site]; ok {
			x.site = to
			w.open.freed[key] = x
		}
	}
}
