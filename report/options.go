// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Options select what a report shows. Each report uses those that apply to it.
type Options struct {
	Top       int           // most entries of each list; 0: 10, in the summary 5
	Older     time.Duration // leaks: only sites whose oldest live allocation is known to be at least this old
	AllFrames bool          // tree: libraries' frames too, not the user's own code alone
	// Summary: paths of records of out-of-memory errors, by pid.
	Records map[uint32]string
	Job     bool             // summary: the processes are those of a job: all that have ended, by rank
	Steps   *steps.Session   // the steps of its trainings; nil: unknown
	Peak    *ledger.Snapshot // explain, summary: the moment at which the memory is divided in place of the end, which has none
	// Summary, without Peak: the books of processes that have ended at their peaks, with holders;
	// nil: unknown.
	Peaks map[ledger.ProcessID]*ledger.Snapshot
	Since *ledger.Snapshot // views: not nil: show what changed since this earlier moment of the session
}

// Limit returns how many entries a list shows.
func (o *Options) Limit() int {
	if o.Top <= 0 {
		return 10
	}
	return o.Top
}
