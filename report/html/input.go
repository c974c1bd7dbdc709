// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// MaxPast is how many processes that have ended a page shows the purposes of.
const MaxPast = 16

// Input is what a page shows. Write does not change it.
type Input struct {
	Snapshot *ledger.Snapshot // at the end of what is shown
	Stacks   callstack.Stacks

	// Timeline ends where Snapshot was taken, and its sites are those of Snapshot. If it is nil,
	// the page has no chart, no peak and no growth.
	Timeline *timeline.Timeline

	Steps    *steps.Session       // the steps of its trainings; nil: unknown
	Verdicts []report.SiteVerdict // of each of Snapshot.Sites, or nil
	Balance  []string             // what each GPU is used for and what of it grows, shown first
	Advice   []string             // sentences on what to do, shown with what leaks
	Judged   uint64               // Snapshot.End of the verdicts, balance and advice; 0: that of Snapshot

	Past []purpose.Past // what processes that have ended used at their peaks

	Title string // "": a title with the host's name

	MaxSites int   // sites listed one by one, the smaller ones are summed; 0: 20,000
	Live     *Live // nil: the page does not change
}

// check tests a timeline, which can come from a damaged file.
func (in *Input) check() error {
	tl := in.Timeline
	if tl == nil {
		return nil
	}
	n := len(tl.Times)
	for i := range tl.Rows {
		r := &tl.Rows[i]
		for _, k := range []int{len(r.Usage), len(r.Tensors), len(r.Cached), len(r.Driver), len(r.Rounding), len(r.Before), len(r.Unexplained), len(r.Host)} {
			if k != n || r.Process < 0 || r.Process >= len(tl.Processes) {
				return fmt.Errorf("row %d of the timeline does not fit to its %d moments and %d processes", i, n, len(tl.Processes))
			}
		}
		for _, list := range [][]uint64{r.Beyond, r.Managed, r.System, r.Asleep} {
			if list != nil && len(list) != n {
				return fmt.Errorf("row %d of the timeline does not fit to its %d moments", i, n)
			}
		}
	}
	for i := range tl.Sites {
		if x := &tl.Sites[i]; len(x.Live) != n || x.Process < 0 || x.Process >= len(tl.Processes) {
			return fmt.Errorf("site %d of the timeline does not fit to its %d moments and %d processes", i, n, len(tl.Processes))
		}
	}
	for i := range tl.Marks {
		if p := tl.Marks[i].Process; p < 0 || p >= len(tl.Processes) {
			return fmt.Errorf("mark %d of the timeline is of process %d of %d", i, p, len(tl.Processes))
		}
	}
	return nil
}

// Live is what a page needs that is served, and follows a session or shows a moment of an archive.
// Its server answers at the relative addresses "events" and "data".
type Live struct {
	Past bool // a moment of an archive: the page does not follow the session

	From, To time.Time // of the archive; zero: there is none
	Errors   []Error   // out-of-memory errors, the latest first
	More     uint64    // errors that Errors lacks
}

// Error is an out-of-memory error.
type Error struct {
	report.OOM
	Wall   time.Time
	Frames callstack.Stacks // has OOM.Stack; nil: unknown
}
