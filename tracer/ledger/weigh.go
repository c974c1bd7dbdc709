// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// siteList is Snapshot.Sites under construction: sites that are shown by the same key are one.
type siteList struct {
	list []Site
	at   map[shownKey]int
}

// add returns the index of the site.
func (x *siteList) add(key shownKey, s *Site) int {
	i, twin := x.at[key]
	if twin {
		x.list[i].merge(s)
		return i
	}
	i = len(x.list)
	x.at[key] = i
	x.list = append(x.list, *s)
	return i
}

// tensors adds the sites of kind Tensor, which is a sample, and Snapshot.Tensors. See Tensors for
// the formulas.
func (v *view) tensors(sites *siteList) {
	v.placeNameless(sites.list)
	segments := v.segments(sites.list)
	for _, p := range v.list {
		if len(p.process.tensors) > 0 {
			p.withSites(func(all []*site) { p.addTensors(all, segments, sites) })
		}
	}
	slices.SortFunc(v.s.Tensors, func(a, b Tensors) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Device, b.Device))
	})
}

// addTensors adds those of the process, given its sites.
func (v *processView) addTensors(all []*site, segments map[processDevice]segmentSum, sites *siteList) {
	byDevice := make([]members, len(v.tensors))
	for _, s := range all {
		if s.kind == Tensor {
			m := &byDevice[s.total][s.class]
			*m = append(*m, s)
		}
	}
	for i := range v.tensors {
		m := &v.moments[i]
		t := v.tensorsIn(&v.tensors[i], m, segments)
		t.spreadCache(sites.list[v.from:v.to])
		t.Error = v.weigh(&v.tensors[i], m, &byDevice[i], sites)
		if !v.tensors[i].isVoid(m) {
			v.all.s.Tensors = append(v.all.s.Tensors, t)
		}
	}
}

// isVoid reports whether nothing is known of an allocator: readings showed that it changes without
// a report.
func (t *tensors) isVoid(m *tensorState) bool {
	return t.device >= 0 && !t.now.known && !t.first.seen && !t.reading.taken && t.peak.bytes == 0 && m.live == (count{}) && m.freed == (count{})
}

// placeNameless sets Site.Tensors of each segment if blocks have no addresses, as with PyTorch
// before 1.10, which reports the addresses of its own structures.
func (v *view) placeNameless(all []Site) {
	for _, p := range v.list {
		for i := range p.process.tensors {
			t := &p.process.tensors[i]
			if t.device >= 0 && t.reading.taken && t.now.reserved == 0 {
				spreadNameless(all[p.from:p.to], t.device, p.moments[i].live.bytes)
			}
		}
	}
}

// spreadNameless gives each segment of a device the same share of the live bytes, which all add up
// to the exact total.
func spreadNameless(sites []Site, device int32, live uint64) {
	var segments uint64
	var last *Site
	for k := range sites {
		if s := &sites[k]; s.Segment && s.Device == device {
			segments += s.LiveBytes
		}
	}
	rest := min(live, segments)
	for k := range sites {
		if s := &sites[k]; s.Segment && s.Device == device {
			high, low := bits.Mul64(s.LiveBytes, min(live, segments))
			s.Tensors, _ = bits.Div64(high, low, max(segments, 1))
			rest -= s.Tensors
			last = s
		}
	}
	// the remainder of the rounding
	for k := 0; rest > 0 && last != nil && k < len(sites); k++ {
		if s := &sites[k]; s.Segment && s.Device == device && s.Tensors < s.LiveBytes {
			more := min(rest, s.LiveBytes-s.Tensors)
			s.Tensors += more
			rest -= more
		}
	}
}

// segmentSum sums the segments on a device, and the bytes of blocks in them.
type segmentSum struct{ bytes, inside uint64 }

func (v *view) segments(sites []Site) map[processDevice]segmentSum {
	sums := map[processDevice]segmentSum{}
	for i := range sites {
		if s := &sites[i]; s.Segment {
			at := processDevice{s.Process, s.Device}
			sum := sums[at]
			sums[at] = segmentSum{sum.bytes + s.LiveBytes, sum.inside + s.Tensors}
		}
	}
	return sums
}

// tensorsIn returns the totals of one device.
func (v *processView) tensorsIn(t *tensors, m *tensorState, segments map[processDevice]segmentSum) Tensors {
	p, index, session := v.process, v.index, v.all.s
	here := func(device int32) bool {
		return device == t.device || device == UnknownDevice && v.only == t.device
	}
	live, freed := m.live, m.freed
	out := Tensors{
		Process: index, Device: t.device, Peak: t.peak.bytes, PeakTime: t.peak.time,
		Allocated: m.allocated, Reserved: p.reserved(t, here),
		LiveObjects: live.objects, LiveBytes: live.bytes,
		AllocObjects: live.objects + freed.objects, AllocBytes: live.bytes + freed.bytes,
		Sampled: t.sampled, Halvings: t.halvings, Pause: Pause{Open: t.open},
	}
	if t.device < 0 {
		return out
	}
	segment := segments[processDevice{index, t.device}]
	if t.now.reserved != 0 { // without a BlockList, all blocks are taken to lie in the segments
		// in segments from before the attach
		room := minus(minus(out.Reserved, segment.bytes), minus(out.Allocated, out.LiveBytes))
		segment.inside = min(minus(out.LiveBytes, min(t.outside, room)), segment.bytes)
	}
	v.asleepOn(t, &out, &segment, here)
	out.Segments, out.Cached = segment.bytes, segment.bytes-segment.inside
	out.Older = minus(out.Allocated, out.LiveBytes)
	if t.untraced {
		out.Untraced = minus(out.Older, t.traced)
		out.LostAt = minus(t.lost, session.Begin)
		out.Phases = t.phases.View(session.Begin, session.End)
	}
	t.olderFreed.Fill(out.OlderFreed[:], 0, session.End-session.Begin)
	outside := minus(out.LiveBytes, segment.inside+out.Asleep)
	inside := out.untracedInside(outside)
	out.Cached, out.Older = out.Cached-inside, out.Older-inside
	older := v.olderReserved(t, &out, outside, here)
	out.OlderCached = minus(minus(older, out.Older), outside)
	out.Older += inside
	out.Untraced = min(out.Untraced, out.Older-out.OlderAsleep-out.OlderMoved)
	for _, r := range p.freeRuns {
		if here(r.device) && t.now.reserved != 0 { // otherwise blocks have no addresses
			out.LargestFree = max(out.LargestFree, r.bytes)
		}
	}
	out.LargestFree = max(out.LargestFree, min(p.allocator.largestFree(t.device), out.OlderCached))
	if b := session.balanceOn(index, t.device, v.onlyUUID); b >= 0 {
		balance := &session.Balances[b]
		out.Foreign = minus(balance.Baseline, v.olderSegments(&t.first, here))
		// What the allocator reports later about segments from before the attach may already have
		// been so at the reading, unless it gave one back meanwhile.
		if t.atUsage.seen && balance.Usage != 0 && p.olderFreed > balance.Time {
			balance.Since += int64(older - v.olderSegments(&t.atUsage, here))
		}
	}
	return out
}

// untracedInside returns how much of Untraced lies in segments that were allocated since the
// attach, where it has taken cache. Where that is not known, it is as much of their free memory as
// of that of older segments, in which outside bytes are live.
func (t *Tensors) untracedInside(outside uint64) uint64 {
	if t.Untraced == 0 {
		return 0
	}
	older := minus(minus(t.Reserved, t.Segments), t.Older-t.Untraced+outside)
	if t.Untraced >= t.Cached+older {
		return min(t.Untraced, t.Cached)
	}
	high, low := bits.Mul64(t.Untraced, t.Cached)
	inside, _ := bits.Div64(high, low, t.Cached+older)
	return inside
}

// spreadCache scales the cached bytes of a process's segments so that they add up to the cache: the
// blocks were listed at another moment than the totals were read.
func (t *Tensors) spreadCache(sites []Site) {
	var list []int
	var cached, inside []uint64
	var sum uint64
	for i := range sites {
		if s := &sites[i]; s.Segment && s.Device == t.Device {
			list = append(list, i)
			cached, inside = append(cached, s.LiveBytes-s.Tensors), append(inside, s.Tensors)
			sum += s.LiveBytes - s.Tensors
		}
	}
	if t.Cached <= sum { // no part exceeds its segment
		cached, _ = apportion(t.Cached, cached)
		for k := range cached {
			sites[list[k]].Tensors = sites[list[k]].LiveBytes - cached[k]
		}
		return
	}
	inside, _ = apportion(t.Segments-t.Cached, inside)
	for k := range inside {
		sites[list[k]].Tensors = inside[k]
	}
}

// weigh adds the sites of one device, weighted so that each stratum adds up to its exact totals,
// and returns the standard error of the largest site's live bytes.
func (v *processView) weigh(t *tensors, m *tensorState, byClass *members, sites *siteList) uint64 {
	var shares [SizeClasses][]share
	for class, list := range byClass {
		shares[class] = make([]share, len(list))
	}
	var rest share // parts of strata without a sample
	live, freed := v.strata(t, m, byClass, ofLive), []stratum(nil)
	if !v.all.levels {
		freed = v.strata(t, m, byClass, ofFreed)
	}
	for i := range live {
		v.divide(&live[i], ofLive, byClass, &shares, &rest)
	}
	for i := range freed { // none of Levels
		v.divide(&freed[i], ofFreed, byClass, &shares, &rest)
	}
	variance := map[int]float64{}
	var evicted, crowded uint64 // of sites that are not shown
	for i := range live {
		errors := spread{}
		for class := live[i].from; class < live[i].to; class++ {
			for k, s := range byClass[class] {
				if shares[class][k] != (share{}) {
					at := sites.add(v.shownKey(s.siteKey), v.tensorSite(s, &shares[class][k], &live[i]))
					errors.add(at, s, v.inclusion(class))
				} else {
					evicted, crowded = evicted+s.evicted, crowded+s.crowded
				}
			}
		}
		errors.sum(variance, &live[i])
	}
	largest := -1
	for i := range variance {
		if largest < 0 || compareSites(sites.list[i], sites.list[largest]) < 0 {
			largest = i
		}
	}
	if rest != (share{}) {
		out := rest.site(v.index, t.device, "torch")
		out.Evicted, out.Crowded = evicted, crowded
		if !v.all.levels {
			out.History = slices.Repeat([]uint64{out.LiveBytes}, HistoryLen)
		}
		sites.add(shownKey{siteKey{device: t.device, kind: Tensor, api: out.API}, v.index}, out)
	}
	if largest < 0 {
		return 0
	}
	return uint64(min(math.Sqrt(variance[largest]), maxTensors))
}

// site returns a Site with that part.
func (x *share) site(process int, device int32, api string) *Site {
	return &Site{
		Process: process, Device: device, Kind: Tensor, API: api,
		LiveObjects: x.live.objects, LiveBytes: x.live.bytes,
		AllocObjects: x.live.objects + x.freed.objects, AllocBytes: x.live.bytes + x.freed.bytes,
	}
}

// tensorSite returns the shown part of one site. Its past is that of its sample, times the weight
// of its stratum now: exact live bytes divided by those of the sample.
func (v *processView) tensorSite(s *site, part *share, x *stratum) *Site {
	out := part.site(v.index, s.device, s.api)
	out.Stack, out.Oldest, out.Evicted, out.Crowded = s.stack, s.oldest, s.evicted, s.crowded
	if s.first != 0 {
		out.Oldest = v.entries.at(s.first).time
	}
	if v.all.levels {
		return out
	}
	out.History = make([]uint64, HistoryLen)
	p := v.inclusion(int(s.class))
	session, from := v.all.s.End-v.all.s.Begin, v.since()
	s.track.History.Fill(out.History, from, session)
	for i := range out.History {
		out.History[i] = x.weighted(out.History[i], p)
	}
	out.History[HistoryLen-1] = out.LiveBytes
	s.fillTensors(v.all.s.Begin, v.all.s.End, v.newest, out, part)
	s.fillPresumed(v.all.s.Begin, v.all.s.End, out, p)
	v.addHolders(out, s.siteKey)
	out.grow(from, session, func(t uint64) uint64 { return x.weighted(s.track.History.At(t), p) })
	return out
}
