// SPDX-License-Identifier: Apache-2.0

package ledger

// An allocator that gives segments back to the driver (torch.cuda.empty_cache) does not report it:
// what it has reserved since its latest report follows from calls of the driver.

// segmentChange is a driver allocation, or the end of one, that may be a segment.
type segmentChange struct {
	time  uint64
	site  uint32
	bytes uint64
	freed bool
}

// maxSegmentChanges bounds the changes since an allocator's latest report; a busy one reports soon.
const maxSegmentChanges = 1 << 16

// segmentChanged notes a change that the latest report may not include.
func (p *torch) segmentChanged(s *site, bytes, time uint64, freed bool) {
	if len(p.tensors) == 0 || p.purged || !s.mayBeSegment() {
		return
	}
	p.spend(len(p.tensors))
	for i := range p.tensors {
		if t := &p.tensors[i]; (t.device == s.device || s.device == UnknownDevice) && t.device >= 0 && t.mayNotKnow(time) && len(t.changes) < maxSegmentChanges {
			t.changes = append(t.changes, segmentChange{time, s.number, bytes, freed})
		}
	}
}

// mayNotKnow reports whether the latest report may be older than time.
func (t *tensors) mayNotKnow(time uint64) bool {
	return !t.now.known || t.now.time != 0 && time > t.now.time
}

// forgetChanges drops changes that the latest report includes.
func (t *tensors) forgetChanges() {
	rest := t.changes[:0]
	for _, c := range t.changes {
		if t.mayNotKnow(c.time) {
			rest = append(rest, c)
		}
	}
	t.changes = rest
}

// reserved returns what the allocator has reserved now; here reports whether a site's device is the
// allocator's.
func (p *torch) reserved(t *tensors, here func(device int32) bool) uint64 {
	sum := t.now.reserved
	if sum == 0 {
		return 0
	}
	for _, c := range t.changes {
		switch s := p.sites[c.site]; {
		case !s.segment || !here(s.device):
		case c.freed:
			sum = minus(sum, c.bytes)
		default:
			sum += c.bytes
		}
	}
	return sum
}

// olderSegments returns what an allocator had reserved in segments from before the attach.
func (p *torch) olderSegments(r *firstReport, here func(device int32) bool) uint64 {
	bytes := r.reserved
	for _, x := range r.driver {
		if s := p.sites[x.site]; s.segment && here(s.device) {
			bytes = minus(bytes, x.bytes)
		}
	}
	return bytes
}
