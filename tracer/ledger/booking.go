// SPDX-License-Identifier: Apache-2.0

package ledger

// evict counts an allocation that the process has no room for. No live figure includes it.
func (p *heap) evict(s *site) {
	p.stats.Evicted++
	s.evicted++
}

// addEntry makes an allocation live.
func (p *heap) addEntry(key liveKey, b entry) uint32 {
	n := p.entries.take(b)
	if p.live == nil {
		p.live = make(map[liveKey]uint32)
	}
	p.live[key] = n
	p.hold(tableLive)
	p.takeRoom(&b)
	return n
}

// dropEntry ends a live allocation that is in no list any more.
func (p *heap) dropEntry(key liveKey, n uint32) {
	if p.walks != nil {
		p.noteFreed(key, n)
	}
	delete(p.live, key)
	p.entries.release(n)
	p.give(tableLive)
}

func (p *heap) addLive(s *site, size, time uint64) {
	if size == 0 {
		p.stats.UnknownSizes++
		if p.purged {
			p.unsized++
		}
	}
	p.keep(s)
	s.liveObjects++
	s.liveBytes += size
	s.history.record(p.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.LiveObjects++
		t.LiveBytes += size
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}

// grow makes a live entry of unknown or too small a size larger.
func (p *heap) grow(n uint32, size, time uint64) {
	b := p.entries.at(n)
	s := p.sites[b.site]
	if size <= b.size || size > maxSize || size-b.size > maxSum-p.totals[s.sum].AllocBytes {
		return
	}
	if b.size == 0 {
		p.stats.UnknownSizes--
	}
	more := size - b.size
	b.size = size
	p.keep(s)
	s.allocBytes += more
	s.liveBytes += more
	s.history.record(p.options.Begin, time, s.liveBytes)
	s.grown(p.options.Begin, b.time, more)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &p.totals[t]
		t.AllocBytes += more
		t.LiveBytes += more
		t.high = max(t.high, t.LiveBytes)
		t.peak(time)
	}
	p.reachedOn(&p.totals[s.total].Total, time)
}

// allocation returns live block n as an Observer sees it.
func (p *heap) allocation(n uint32) Allocation {
	b := p.entries.at(n)
	s := p.sites[b.site]
	space := s.space
	if space == memories {
		space = Physical
	}
	return Allocation{
		Process: p.number, PID: p.PID, Device: s.device, Kind: s.kind, Space: space,
		Address: b.address, Size: b.size, Time: b.time, Stack: s.stack, API: s.api,
	}
}
