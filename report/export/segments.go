// SPDX-License-Identifier: Apache-2.0

package export

import "github.com/vramprof/vramprof/tracer/ledger"

// The trace must change what is drawn exactly as it says, so segments never overlap, and neither do
// blocks: where the events contradict each other, the newer ones count.

// allocSegment adds driver memory. Other segments at its addresses were freed unseen; one that is
// live again since its free failed is not drawn over them.
func (s *space) allocSegment(x extent, time uint64) {
	again := time > x.Value.time
	if again && s.segments.Overlaps(x.Start, x.End) {
		return
	}
	s.vacate(x.Start, x.End, time)
	s.last++
	x.Value.id = s.last
	s.segments.Insert(x)
	if p := s.memories[x.Value.memory]; p != nil && x.Value.class == mapped {
		p.drawn = true
	}
	s.trace.push(beginOf(x.Value.class), &x, time)
}

func beginOf(c class) action {
	if c == whole {
		return segmentAlloc
	}
	return segmentMap
}

// vacate ends all segments in a range; of one from before the attach only the part inside, as its
// ends are guessed.
func (s *space) vacate(start, end, time uint64) {
	for _, x := range s.segments.Cut(start, end) {
		if x.Value.class == older {
			x = s.trim(x, start, end)
		}
		s.endSegment(&x, time)
	}
}

// trim puts back what a segment that was removed has outside of [start, end), and returns the rest.
func (s *space) trim(x extent, start, end uint64) extent {
	for _, part := range [...][2]uint64{{x.Start, min(start, x.End)}, {max(end, x.Start), x.End}} {
		if part[0] < part[1] {
			s.segments.Insert(extent{Start: part[0], End: part[1], Value: x.Value})
		}
	}
	x.Start, x.End = max(x.Start, start), min(x.End, end)
	return x
}

// end removes a segment and what is in it.
func (s *space) end(g *extent, time uint64) {
	x := *g
	s.segments.Cut(x.Start, x.End)
	s.endSegment(&x, time)
}

// endSegment notes the end of a segment that has been removed, and ends the blocks in it.
func (s *space) endSegment(x *extent, time uint64) {
	s.endBlocks(x.Start, x.End, time)
	if x.Value.class == whole {
		s.trace.push(segmentFree, x, time)
	} else {
		s.trace.push(segmentUnmap, x, time)
	}
	if p := s.memories[x.Value.memory]; p != nil && x.Value.class == mapped {
		p.drawn = false
	}
	s.went(x)
}

func (s *space) endBlocks(start, end, time uint64) {
	for _, b := range s.blocks.Cut(start, end) {
		s.trace.push(tensorFree, &b, time)
	}
}

// went remembers that a segment was there.
func (s *space) went(x *extent) {
	start, end := x.Start, x.End
	for _, g := range s.gone.Cut(start-min(start, 1), end+1) {
		start, end = min(start, g.Start), max(end, g.End)
	}
	if s.gone.Len() >= maxGone {
		s.goneAll, s.gone = true, extents{}
	}
	if !s.goneAll {
		s.gone.Insert(extent{Start: start, End: end})
	}
}

// wasOther reports whether a segment in a range has ended.
func (s *space) wasOther(start, end uint64) bool { return s.goneAll || s.gone.Overlaps(start, end) }

// allocBlock adds a tensor. Where another one is live its free was not seen.
func (s *space) allocBlock(x extent) {
	v := &x.Value
	s.endBlocks(x.Start, x.End, v.time)
	s.cover(x.Start, x.End, v.device, v.time)
	if !s.joined(&x) { // something that was not seen has happened
		s.vacate(x.Start, x.End, v.time)
		s.cover(x.Start, x.End, v.device, v.time)
	}
	for g := range s.segments.Overlap(x.Start, x.End) {
		if d := s.deviceOf(g); d >= 0 {
			v.device = d
		}
	}
	for g := range s.segments.Overlap(x.Start, x.End) {
		s.host(g, v.device)
		if v.id == 0 {
			v.id = g.Value.id
		}
	}
	s.blocks.Insert(x)
	s.trace.push(tensorAlloc, &x, v.time)
}

// joined reports whether all that is in a tensor's range can be one segment.
func (s *space) joined(x *extent) bool {
	var first *contents
	device := int32(ledger.UnknownDevice)
	for g := range s.segments.Overlap(x.Start, x.End) {
		v := &g.Value
		if first == nil {
			first = v
		} else if first.class == whole || v.class == whole || first.guessed() != v.guessed() {
			return false
		}
		switch d := s.deviceOf(g); {
		case device < 0:
			device = d
		case d >= 0 && d != device:
			return false
		}
	}
	return true
}

// deviceOf returns the device of a segment as far as it is known; what is learned of a part of a
// segment counts for all parts.
func (s *space) deviceOf(g *extent) int32 {
	if g.Value.device >= 0 {
		return g.Value.device
	}
	if d, ok := s.learned[g.Value.id]; ok {
		return d
	}
	return ledger.UnknownDevice
}

// host notes that a tensor of a device lies in a segment.
func (s *space) host(g *extent, device int32) {
	if device != ledger.UnknownDevice && s.deviceOf(g) == ledger.UnknownDevice {
		s.learned[g.Value.id] = device
	}
	if !g.Value.guessed() {
		s.hosts[siteKey{g.Value.stack, g.Value.api}] = true
	}
}

// cover adds segments from before the attach where a range has none: its tensors must lie in
// something. They have the sizes that PyTorch takes, up to the next segment.
func (s *space) cover(start, end uint64, device int32, time uint64) {
	for at := start; at < end; {
		if g := s.segments.At(at); g != nil {
			at = g.End
			continue
		}
		from := max(at&^(segmentGrain-1), s.segments.EndBefore(at))
		to := min((end+segmentGrain-1)&^(segmentGrain-1), addressEnd)
		for g := range s.segments.From(at) {
			to = min(to, g.Start)
			break
		}
		s.last++
		x := extent{Start: from, End: to, Value: contents{time: time, id: s.last, device: device, class: older}}
		if s.wasOther(from, to) {
			x.Value.class = found
			s.trace.push(segmentMap, &x, max(time, s.now))
		}
		s.segments.Insert(x)
		at = to
	}
}

// freeOlder ends a segment from before the attach that is freed by its address. Its size is
// unknown: it ends at the next tensor, or where no more is known of memory before the attach.
func (s *space) freeOlder(address, time uint64) {
	end := address
	for g := range s.segments.From(address) {
		if !g.Value.guessed() || g.Start > end {
			break
		}
		end = g.End
	}
	for b := range s.blocks.From(address) {
		end = min(end, b.Start)
		break
	}
	if address >= end {
		return
	}
	for _, x := range s.segments.Cut(address, end) {
		// it ends whole or not at all
		if x.Value.class == found && (x.Start < address || x.End > end) {
			s.segments.Insert(x)
			continue
		}
		x = s.trim(x, address, end)
		s.endSegment(&x, time)
	}
}
