// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/vramprof/vramprof/tracer/ledger"

// PeakTime returns the time at which one process had the most memory on one GPU: its tensors, where
// its PyTorch reports them, because segments follow late or never shrink. ok is false if no process
// held GPU memory.
func PeakTime(s *ledger.Snapshot) (at uint64, ok bool) { return PeakTimeOf(s, -1) }

// PeakTimeOf is PeakTime of one process, or of all for -1.
func PeakTimeOf(s *ledger.Snapshot, process int) (at uint64, ok bool) {
	var most uint64
	note := func(bytes, time uint64) {
		if bytes > most {
			most, at = bytes, time
		}
	}
	torch := map[int]bool{}
	for i := range s.Tensors {
		if x := &s.Tensors[i]; x.Device != ledger.CPUDevice && x.Peak > 0 && (process < 0 || x.Process == process) {
			torch[x.Process] = true
			note(x.Peak, x.PeakTime)
		}
	}
	for i := range s.Processes {
		for _, x := range s.Processes[i].Totals {
			if !torch[i] && x.Kind.Owned() && (process < 0 || i == process) {
				note(x.PeakBytes, x.PeakTime)
			}
		}
	}
	return at, most > 0
}
