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
	f := finder(r, s, points...)
	if err := r.Player().PlayTo(r.End(), f); err != nil {
		return nil, err
	}
	return &steps.Session{List: f.Steps()}, nil
}

func finder(r *capture.Reader, s *ledger.Snapshot, points ...uint64) *steps.Finder {
	return steps.NewFinder(r, append(points, ledger.PeakTimes(s, timeline.MaxPeaks)...))
}

// TimelineAndSteps returns what Timeline and Steps return, and plays a capture that is shown to its
// end once for both.
func TimelineAndSteps(r *capture.Reader, at, most uint64) (*ledger.Snapshot, *timeline.Timeline, *steps.Session, error) {
	if at < r.End() || r.Events() > most {
		s, t, _, err := Timeline(r, First(r), at)
		if err != nil {
			return nil, nil, nil, err
		}
		found, err := Steps(r, s, most)
		return s, t, found, err
	}
	var f *steps.Finder
	s, t, _, err := played(r, First(r), at, func(l ledger.Books, last *ledger.Snapshot) ledger.Books {
		f = finder(r, last, last.End)
		return &both{l, f}
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return s, t, &steps.Session{List: f.Steps()}, nil
}

// both are books that are told the same. The finder only reads.
type both struct {
	ledger.Books
	finder *steps.Finder
}

func (b *both) Apply(e *ledger.Event) {
	b.finder.Apply(e)
	b.Books.Apply(e)
}

func (b *both) Tell(in ledger.Input) {
	b.finder.Tell(in)
	b.Books.Tell(in)
}
