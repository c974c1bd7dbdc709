// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// noticeable is the share of a thread's time above which all reports show what tracing took.
const noticeable = 0.05

// CostText returns "Tracing took 3.1% of the busiest thread's time, and up to 7.3% within 10s (python3
// [4121], 38,000 tensors a second)", or "" if no tensors were traced or the price of their probe is not
// known.
func CostText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Price == 0 || c.Session.PID == 0 {
		return ""
	}
	return fmt.Sprintf("Tracing took %s of the busiest thread's time, and up to %s within 10s (%s)",
		percent(c.Session.Share()), percent(c.Highest.Share()), busiest(s, c.Highest))
}

// costText returns what tracing cost where it was much, and what to do about it, or "".
func costText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Highest.Share() <= noticeable || c.Budget > 0 {
		return ""
	}
	return fmt.Sprintf("tracing took up to %s of the busiest thread's time (%s): --budget 2 bounds it",
		percent(c.Highest.Share()), busiest(s, c.Highest))
}

// awayText returns for how much of the session tensors were not traced because of a budget, or "".
func awayText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Away == 0 {
		return ""
	}
	return fmt.Sprintf("tensors were not traced for %s of the session, since tracing may take %s of a thread's time: "+
		"what was allocated before the latest pause ended has no stack, and counts as allocated before the attach",
		percent(float64(c.Away)/float64(max(Minus(s.End, s.Begin), 1))), percent(float64(c.Budget)/1e6))
}

// busiest names a process and its rate. PyTorch reports each tensor twice: when it is allocated and when it
// is freed.
func busiest(s *ledger.Snapshot, c ledger.CostShare) string {
	name := fmt.Sprintf("process %d", c.PID)
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PID == c.PID {
			name = format.Process(p)
		}
	}
	return fmt.Sprintf("%s, %s tensors a second", name, humanize.Comma(int64(math.Round(min(c.PerSecond()/2, 1e12)))))
}

// percent writes a share of at most 100% with three digits.
func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*min(share, 1)) }
