// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Past is what a process that has ended used on one GPU at its peak. Process is an index into the
// snapshot that has the peak.
type Past struct {
	Balance
	Time  uint64   // of the peak, ns of CLOCK_MONOTONIC
	Notes []string // what the figures leave open
}

// AtPeak returns the balances of a process at its peak. replayed are the same books with holders,
// as a capture has them; nil: the stack traces of the peak's own books show what tensors are for.
func AtPeak(x *ledger.Peak, replayed *ledger.Snapshot, st callstack.Stacks) (list []Past) {
	s := x.Books
	if replayed != nil {
		s = replayed
	}
	for _, b := range Of(s, st) {
		p := Past{Balance: b, Time: x.Time, Notes: b.Notes(s)}
		p.Process = x.Process
		list = append(list, p)
	}
	return list
}

// AtPeaks returns the balances of the processes of a snapshot that have ended, the highest peak
// first, at most so many processes.
func AtPeaks(s *ledger.Snapshot, st callstack.Stacks, replayed map[ledger.ProcessID]*ledger.Snapshot, most int) (list []Past) {
	peaks := report.HighestPeaks(s)
	for _, x := range peaks[:min(len(peaks), most)] {
		list = append(list, AtPeak(x, replayed[s.Processes[x.Process].ID()], st)...)
	}
	return list
}

// Compare orders by size, then by process and GPU.
func (p *Past) Compare(q *Past) int {
	return cmp.Or(cmp.Compare(p.Bytes, q.Bytes), cmp.Compare(q.Process, p.Process), cmp.Compare(q.Device, p.Device), cmp.Compare(q.UUID, p.UUID))
}
