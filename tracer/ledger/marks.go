// SPDX-License-Identifier: Apache-2.0

package ledger

// highest is a maximum and its time.
type highest struct{ bytes, time uint64 }

func (h *highest) reach(bytes, time uint64) {
	if bytes > h.bytes {
		h.bytes, h.time = bytes, time
	}
}

// peakMark is a process's highest bytes at an event. Sites, allocators and readings keep what they
// had then once they change, which takes the same time for each event, however large the books are.
type peakMark struct {
	highest
	number uint32 // of the maximum: it grows with each
	torch  bool   // its tensors count, and not its allocations
	device int32  // GPU of the latest allocation
	more   bool   // it has allocated on several GPUs
}

// sitePeak is what a site had at the maximum with that number, if it has changed since.
type sitePeak struct {
	objects, bytes uint64
	number         uint32
}

// highMark is a process's highest bytes since AddHighest was called last; its parts keep what they
// had as for a peakMark. Its number is 0 until the first call of the session: nothing is kept if
// nobody asks.
type highMark struct {
	highest
	number uint64
}

// siteHigh is what a site had at the highest with that number, if it has changed since.
type siteHigh struct{ objects, bytes, number uint64 }

// usagePeak is what NVML had reported at the maximum with that number.
type usagePeak struct {
	last, taken uint64
	lastLive    []deviceLive
	number      uint32
}

// reached notes a value of the process after an event.
func (p *heap) reached(bytes, time uint64) {
	if bytes > p.peak.bytes && !p.purged {
		p.peak.bytes, p.peak.time = bytes, time
		p.peak.number++
	}
	if bytes > p.high.bytes && p.high.number != 0 {
		p.high.bytes, p.high.time = bytes, time
		p.high.number++
	}
}

// reachedOn notes that an allocation grew a total.
func (p *heap) reachedOn(grown *Total, time uint64) {
	x := &p.peak
	if x.torch || !grown.Kind.Owned() {
		return
	}
	if grown.Device >= 0 && grown.Device != x.device {
		x.more = x.number != 0 && x.device >= 0
		x.device = grown.Device
	}
	if x.more {
		p.reached(p.owned(grown.Device), time)
	} else {
		p.reached(p.owned(allDevices), time)
	}
}

// owned returns what the process allocated and has on a device, or on all.
func (p *heap) owned(device int32) (bytes uint64) {
	for i := range p.totals {
		if t := &p.totals[i]; t.Device == device && t.Kind.Owned() {
			bytes += t.LiveBytes
		}
	}
	return bytes
}

// reachedTensors notes what an allocator on a GPU has.
func (p *heap) reachedTensors(bytes, time uint64) {
	if bytes == 0 {
		return
	}
	if !p.peak.torch {
		p.peak.torch, p.peak.bytes, p.high.bytes = true, 0, 0
	}
	p.reached(bytes, time)
}

// keep keeps what a site had at the peak, and at the latest highest. It must come before each
// change of its live figures.
func (p *heap) keep(s *site) {
	if s.peak.number != p.peak.number {
		s.peak = sitePeak{s.liveObjects, s.liveBytes, p.peak.number}
	}
	p.keepHigh(s)
}

func (p *heap) keepHigh(s *site) {
	switch {
	case p.high.number == 0:
	case s.high == nil: // once for each site
		s.high = &siteHigh{s.liveObjects, s.liveBytes, p.high.number}
	case s.high.number != p.high.number:
		*s.high = siteHigh{s.liveObjects, s.liveBytes, p.high.number}
	}
}

// keepMoved is keep before an allocation moves to another site: one that was live at the peak moves
// there too.
func (p *heap) keepMoved(s *site, sign int64, b *entry) {
	switch {
	case b.time > p.peak.time:
		if s.peak.number != p.peak.number {
			s.peak = sitePeak{s.liveObjects, s.liveBytes, p.peak.number}
		}
	case s.peak.number == p.peak.number:
		s.peak.objects += uint64(sign)
		s.peak.bytes += uint64(sign) * b.size
	}
	switch {
	case b.time > p.high.time:
		p.keepHigh(s)
	case s.high != nil && s.high.number == p.high.number:
		s.high.objects += uint64(sign)
		s.high.bytes += uint64(sign) * b.size
	}
}

func (p *heap) keepUsage(r *reading) {
	if r.atPeak.number != p.peak.number {
		r.atPeak = usagePeak{r.last, r.taken, r.lastLive, p.peak.number}
	}
}
