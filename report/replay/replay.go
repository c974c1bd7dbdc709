// SPDX-License-Identifier: Apache-2.0

// Package replay plays captures for reports that show more than one moment.
package replay

import (
	"math"

	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// chartSteps is the number of moments in a chart of a session.
const chartSteps = 200

// First returns from when on a capture shows its session, in ns of its clock.
func First(r *capture.Reader) uint64 { return max(r.Begin(), r.Opened()) }

// Timeline returns the timeline between two times in ns of the capture's clock, the snapshot that
// r.Snapshot would return for the later one, and all sizes that were allocated until then. Errors
// are those of reading the capture.
func Timeline(r *capture.Reader, from, at uint64) (*ledger.Snapshot, *timeline.Timeline, *timeline.Sizes, error) {
	return played(r, from, at, func(l ledger.Books, _ *ledger.Snapshot) ledger.Books { return l })
}

// played is Timeline for books that are made around the ledger and the snapshot.
func played(r *capture.Reader, from, at uint64, around func(ledger.Books, *ledger.Snapshot) ledger.Books) (*ledger.Snapshot, *timeline.Timeline, *timeline.Sizes, error) {
	l, player, end := r.NewLedger(), r.Player(), min(max(at, r.Begin()), r.End())
	last, err := r.Snapshot(at)
	if err != nil {
		return nil, nil, nil, err
	}
	moments := timeline.Moments{Begin: from, End: end, Steps: chartSteps, Peaks: ledger.PeakTimes(last, timeline.MaxPeaks)}
	books := around(l, last)
	t, sizes, err := timeline.Play(player, r.Player(), moments, books, func(at uint64) *ledger.Snapshot {
		if at == end {
			return r.SnapshotOf(l, at)
		}
		return r.LevelsOf(l, at)
	})
	if err == nil && at >= r.End() { // some of the last readings are later
		err = player.PlayTo(math.MaxUint64, books)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	s := r.SnapshotOf(l, at)
	l.AddStuck(s)
	l.AddPeaks(s)
	return s, t, sizes, nil
}

// Sizes returns the snapshot of the end of an interval, in ns of the capture's clock, and counts by
// size what was allocated in it. Errors are those of reading the capture.
func Sizes(r *capture.Reader, from, to uint64) (s *ledger.Snapshot, sizes *timeline.Sizes, err error) {
	var counted [2]*timeline.Sizes
	for i, at := range []uint64{from, to} {
		l := r.NewLedger()
		take := func(at uint64) *ledger.Snapshot { return r.SnapshotOf(l, at) }
		if _, counted[i], err = timeline.Build(r.Player(), []uint64{at}, l, take); err != nil {
			return nil, nil, err
		}
	}
	s, err = r.Snapshot(to)
	return s, counted[1].Since(counted[0]), err
}
