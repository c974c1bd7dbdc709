// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Steps returns the steps of the trainings in a capture, up to the moment of a snapshot, with the phases of those
// that have the peaks of the snapshot, its moment, or more moments in ns of the capture's clock. It plays the
// capture from its begin on, which takes a second for some million events.
func Steps(r *capture.Reader, s *ledger.Snapshot, more ...uint64) ([]steps.Steps, error) {
	points := append(append(more, s.End), ledger.PeakTimes(s, timeline.MaxPeaks)...)
	f := steps.NewFinder(r, points)
	if err := r.Player().PlayTo(s.End, f); err != nil {
		return nil, err
	}
	return f.Steps(), nil
}
