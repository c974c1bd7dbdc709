// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// BriefEvents is the most events of a capture in which steps are looked for beside another report.
const BriefEvents = 1_000_000

// Steps returns the steps of the trainings in a capture, with the phases of those that have its
// peaks, the moment of a snapshot, or more moments, in ns of the capture's clock. It plays the
// whole capture, unless it has more than so many events. Errors are those of reading the capture.
func Steps(r *capture.Reader, s *ledger.Snapshot, most uint64, more ...uint64) (*steps.Session, error) {
	if n := r.Events(); n > most {
		return &steps.Session{Skipped: n}, nil
	}
	points := append(more, s.End)
	if s.End < r.End() {
		last, err := r.Snapshot(r.End())
		if err != nil {
			return nil, err
		}
		s = last
	}
	f := steps.NewFinder(r, append(points, ledger.PeakTimes(s, timeline.MaxPeaks)...))
	if err := r.Player().PlayTo(r.End(), f); err != nil {
		return nil, err
	}
	return &steps.Session{List: f.Steps()}, nil
}
