// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// fillTensors is fillCohorts for one size class of the sample. Its cohorts add up to its part. Its
// share of floors and peak is its share of the live bytes of all classes or, if there are none, of
// the freed ones.
func (s *site) fillTensors(begin, time, recent uint64, out *Site, part *share) {
	out.setTrack(s.track.View(begin, time, recent, make([]Cohort, CohortLen)))
	to := part.live.bytes
	from, allocated := s.track.Whole()
	if from == 0 {
		to, from = part.freed.bytes, allocated
	}
	out.Peak = scale(out.Peak, to, from)
	var live, freed uint64 // blocks of the sample, whose weights differ
	for i := range out.Cohorts {
		w := &out.Cohorts[i]
		live += w.LiveObjects
		freed += minus(w.AllocObjects, w.LiveObjects)
	}
	for i := range out.Cohorts {
		w := &out.Cohorts[i]
		gone := count{minus(w.AllocObjects, w.LiveObjects), w.AllocBytes - w.LiveBytes}
		w.LiveObjects = scale(w.LiveObjects, part.live.objects, live)
		w.LiveBytes = scale(w.LiveBytes, part.live.bytes, s.liveBytes)
		w.AllocObjects = w.LiveObjects + scale(gone.objects, part.freed.objects, freed)
		w.AllocBytes = w.LiveBytes + scale(gone.bytes, part.freed.bytes, s.allocBytes)
		w.Floor, w.High, w.Mean = scale(w.Floor, to, from), scale(w.High, to, from), scale(w.Mean, to, from)
	}
	if out.Recent == nil {
		return
	}
	for i := range out.Recent.Windows {
		w := &out.Recent.Windows[i]
		gone := w.AllocBytes - min(w.LiveBytes, w.AllocBytes)
		w.LiveObjects = uint32(min(scale(uint64(w.LiveObjects), part.live.objects, live), math.MaxUint32))
		w.LiveBytes = scale(w.LiveBytes, part.live.bytes, s.liveBytes)
		w.AllocBytes = w.LiveBytes + scale(gone, part.freed.bytes, s.allocBytes)
		w.Floor, w.Mean = scale(w.Floor, to, from), float32(scale(uint64(w.Mean), to, from))
	}
	for i := range out.Recent.Records {
		x := &out.Recent.Records[i]
		x.Floor, x.Lowest, x.Kept, x.Young = scale(x.Floor, to, from), scale(x.Lowest, to, from), scale(x.Kept, to, from), scale(x.Young, to, from)
	}
}
