// SPDX-License-Identifier: Apache-2.0

package reporttest

import "github.com/vramprof/vramprof/tracer/ledger"

// WithPeaks gives the processes of a snapshot that was written by hand the peaks that the books
// would: of their tensors on a GPU, or of their largest total. It returns the snapshot.
func WithPeaks(s *ledger.Snapshot) *ledger.Snapshot {
	torch := map[int]bool{}
	note := func(process int, bytes, time uint64) {
		if p := &s.Processes[process]; bytes > p.PeakBytes {
			p.PeakBytes, p.PeakTime = bytes, time
		}
	}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != ledger.CPUDevice && t.Peak > 0 {
			torch[t.Process] = true
			note(t.Process, t.Peak, t.PeakTime)
		}
	}
	for i := range s.Processes {
		for _, t := range s.Processes[i].Totals {
			if t.Kind.Owned() && !torch[i] {
				note(i, t.PeakBytes, t.PeakTime)
			}
		}
	}
	return s
}
