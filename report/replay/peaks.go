// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of Peaks.
const (
	maxPeaks   = 3
	peakEvents = 20_000_000 // of a capture, each of which may be played once for each peak
)

// Peaks returns the books of the processes in a snapshot that have ended, as they were at their
// peaks, with the holders that the books of a ledger.Peak lack: of the highest peaks, none of a
// capture with many events. Errors are those of reading the capture.
func Peaks(r *capture.Reader, s *ledger.Snapshot) (map[ledger.ProcessID]*ledger.Snapshot, error) {
	list := report.HighestPeaks(s)
	list = list[:min(len(list), maxPeaks)]
	if r.Events()*uint64(len(list)) > peakEvents {
		return nil, nil
	}
	books := map[ledger.ProcessID]*ledger.Snapshot{}
	for _, x := range list {
		then, err := r.Snapshot(x.Time)
		if err != nil {
			return nil, err
		}
		id := s.Processes[x.Process].ID()
		if then = then.Only(func(p *ledger.Process) bool { return p.ID() == id && p.End == 0 }); len(then.Processes) > 0 {
			books[id] = then
		}
	}
	return books, nil
}
