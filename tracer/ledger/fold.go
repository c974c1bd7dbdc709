// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// fold has sites of the newest process of a pid, or of all processes, lose their stack: see Fold.
func (l *Ledger) fold(pid uint32, below uint64) {
	if l.full() {
		return
	}
	l.spend(len(l.procs) + len(l.sites))
	f := folder{l: l, into: map[uint32]uint32{}, keys: map[siteKey]siteKey{}, lists: map[uint32][]uint32{}, groups: map[*cohorts]bool{}}
	for n := range l.procs {
		p := &l.procs[n]
		if p.free || p.purged {
			continue
		}
		if pid == 0 || p.PID == pid && l.byPID[pid] == uint32(n) {
			f.foldProcess(p, float64(below))
		}
	}
	f.finish()
	l.compactSites()
}

// Folded returns Stats.Folded.
func (l *Ledger) Folded() uint64 { return l.stats.Folded }

// folder folds sites.
type folder struct {
	l      *Ledger
	p      *process            // whose sites are folded now
	into   map[uint32]uint32   // by number of a site that is no more: the site that has its figures
	keys   map[siteKey]siteKey // of all folded sites: their keys before and after
	lists  map[uint32][]uint32 // by site: the first entries of lists to merge
	groups map[*cohorts]bool   // that have changed
}

// foldProcess folds sites of one process. Those that a snapshot shows as one are folded together.
func (f *folder) foldProcess(p *process, below float64) {
	l := f.l
	l.spend(64 * len(p.sites))
	f.p = p
	type shown struct {
		sites []uint32
		live  float64 // bytes; of kind Tensor, as many as the sample stands for
	}
	sums, order := map[siteKey]*shown{}, []*shown(nil)
	for _, n := range p.sites {
		s := &l.sites[n]
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
		x.sites = append(x.sites, n)
		if s.kind == Tensor {
			x.live += float64(s.liveBytes) / l.inclusion(int(s.class))
		} else {
			x.live += float64(s.liveBytes)
		}
	}
	before := p.Folded
	for _, x := range order {
		if x.live < below {
			f.fold(x.sites)
		}
	}
	if p.Folded == before {
		return
	}
	p.sites = slices.DeleteFunc(p.sites, func(n uint32) bool {
		_, gone := f.into[n]
		return gone
	})
	p.renumber(f.to)
	f.renameHeld(p.walks)
	l.warnOf(p.PID, fmt.Sprintf("process %d: memory was scarce, so that sites with little memory have lost their stack", p.PID))
}

// to returns the number of the site that has the figures of a site.
func (f *folder) to(n uint32) uint32 {
	if b, ok := f.into[n]; ok {
		return b
	}
	return n
}

// fold takes the stack from sites. Those with common cohorts are folded together.
func (f *folder) fold(sites []uint32) {
	groups, order := map[*cohorts][]uint32{}, []*cohorts(nil)
	for _, n := range sites {
		c := f.l.sites[n].cohorts()
		if groups[c] == nil {
			order = append(order, c)
		}
		groups[c] = append(groups[c], n)
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

// foldGroup folds the sites that have the same cohorts.
func (f *folder) foldGroup(group []uint32, c *cohorts) {
	l := f.l
	to, ok := f.target(group)
	if !ok {
		return
	}
	if to != nil {
		to.merge(c, l.options.Begin)
	}
	first := &l.sites[group[0]]
	for _, n := range group {
		s := &l.sites[n]
		key := s.bareKey()
		f.keys[s.siteKey] = key
		f.p.Folded++
		l.stats.Folded++
		if b, ok := l.siteOf[key]; ok {
			f.join(b, n)
		} else {
			f.rename(n, key, to != nil)
		}
	}
	if to == nil && first.kind == Tensor {
		l.classes[first.hashButForClass()] = group[0]
	}
}

// target returns the cohorts of the sites that the sites of a group become part of, nil if there are
// none yet. It returns false if the group must stay as it is.
func (f *folder) target(group []uint32) (to *cohorts, ok bool) {
	l := f.l
	if first := &l.sites[group[0]]; first.kind == Tensor {
		like := site{siteKey: first.bareKey()}
		if b, ok := l.classes[like.hashButForClass()]; ok && !l.sites[b].isButForClass(&like) {
			return nil, false // another stack has the hash
		} else if ok {
			to = l.sites[b].cohorts()
		}
	}
	need := 0 // places without a stack
	for _, n := range group {
		b, ok := l.siteOf[l.sites[n].bareKey()]
		if !ok {
			need++
			continue
		}
		if s := &l.sites[b]; s.segment || to != nil && s.cohorts() != to {
			return nil, false
		}
		to = l.sites[b].cohorts()
	}
	s, p := &l.quotas[tableBare], f.p
	return to, need == 0 || s.Room(int(p.held[tableBare])+need, int(p.user[tableBare])+need)
}

// join adds the figures of site n to site b, which is the same without a stack.
func (f *folder) join(b, n uint32) {
	l, to, s := f.l, &f.l.sites[b], &f.l.sites[n]
	f.p.keep(to)
	f.p.keep(s)
	to.liveObjects += s.liveObjects
	to.liveBytes += s.liveBytes
	to.allocObjects += s.allocObjects
	to.allocBytes += s.allocBytes
	to.liveSquares += s.liveSquares
	to.inside += s.inside
	to.peak.objects += s.peak.objects
	to.peak.bytes += s.peak.bytes
	if to.high != nil && s.high != nil {
		to.high.objects += s.high.objects
		to.high.bytes += s.high.bytes
	}
	to.early.objects += s.early.objects
	to.early.bytes += s.early.bytes
	to.evicted += s.evicted
	to.crowded += s.crowdedAfter()
	if int32(s.ended-to.ended) > 0 {
		to.ended = s.ended
	}
	to.history.add(&s.history)
	for i := range s.own.parts.list {
		to.own.parts.list[i].add(&s.own.parts.list[i])
	}
	for i := range s.own.parts.recent {
		to.own.parts.recent[i].add(&s.own.parts.recent[i])
	}
	f.groups[to.cohorts()] = true
	if s.first != 0 {
		f.lists[b] = append(f.lists[b], s.first)
	}
	s.leaveCohorts()
	f.into[n] = b
	l.limiter.sites--
	free := s.free
	if l.freeSite(n); !free {
		l.give(tableEver, f.p)
	}
}

// crowdedAfter returns Site.Crowded of a site whose stack is lost.
func (s *site) crowdedAfter() uint64 {
	if s.kind == Tensor {
		return s.crowded + s.liveObjects + s.allocObjects // of freed ones
	}
	return s.crowded + s.allocObjects
}

// rename takes the stack from a site. If others without a stack have cohorts, it shares them.
func (f *folder) rename(n uint32, key siteKey, shares bool) {
	l, s := f.l, &f.l.sites[n]
	delete(l.siteOf, s.siteKey)
	if hash := s.hashButForClass(); s.kind == Tensor && l.classes[hash] == n {
		delete(l.classes, hash)
	}
	s.crowded = s.crowdedAfter()
	s.siteKey = key
	l.siteOf[key] = n
	if shares {
		s.leaveCohorts()
		c := l.sharedBy(s)
		c.adopt(s.own.parts)
		s.shared, s.own.parts.next, c.parts = c, c.parts, s.own.parts
		f.groups[c] = true
	}
	if s.free || s.bare {
		return
	}
	l.give(tableSites, f.p)
	l.hold(tableBare, f.p)
	s.bare = true
}

// finish merges lists of entries, and changes the numbers of sites everywhere else.
func (f *folder) finish() {
	l := f.l
	if len(f.keys) == 0 {
		return
	}
	for b := range f.lists {
		f.mergeEntries(b)
	}
	for i := range l.sites {
		if s := &l.sites[i]; s.process != none && f.groups[s.cohorts()] {
			l.recount(s)
		}
	}
	l.renumberFrees(f.to)
}

// mergeEntries makes one list by time of a site's entries and those of others.
func (f *folder) mergeEntries(b uint32) {
	l, s := f.l, &f.l.sites[b]
	var list []uint32
	for _, first := range append([]uint32{s.first}, f.lists[b]...) {
		for n := first; n != 0; n = l.entries.at(n).next {
			list = append(list, n)
		}
	}
	l.spend(32 * len(list))
	slices.SortStableFunc(list, func(x, y uint32) int { return cmp.Compare(l.entries.at(x).time, l.entries.at(y).time) })
	for i, n := range list {
		e := l.entries.at(n)
		e.site, e.prev, e.next = b, 0, 0
		if i > 0 {
			e.prev = list[i-1]
		}
		if i+1 < len(list) {
			e.next = list[i+1]
		}
	}
	s.first, s.last = list[0], list[len(list)-1]
}

// renumberFrees changes the numbers of sites in what may be undone.
func (l *Ledger) renumberFrees(to func(n uint32) uint32) {
	l.spend(16 * len(l.lastFree))
	for tid, x := range l.lastFree {
		if x.outcome == freed {
			x.entry.site = to(x.entry.site)
			l.lastFree[tid] = x
		}
	}
	for tid, r := range l.released {
		if r.held.number != 0 {
			r.held.entry.site = to(r.held.entry.site)
		}
		for i := range r.ended {
			if x := &r.ended[i]; x.of.number != 0 {
				x.of.entry.site = to(x.of.entry.site)
			}
		}
		l.released[tid] = r
	}
}

// renameHeld changes the keys of sites in the walks of a process.
func (f *folder) renameHeld(w *walks) {
	if w == nil {
		return
	}
	for key, held := range w.sites {
		to, ok := f.keys[key]
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
		if to, ok := f.keys[x.site]; ok {
			x.site = to
			w.open.freed[key] = x
		}
	}
}
