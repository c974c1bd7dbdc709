// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/vramprof/vramprof/tracer/ledger"

// PeakTime returns the time at which one process had the most memory on one GPU: its tensors, where
// its PyTorch reports them, because segments follow late or never shrink. ok is false if no process
// held GPU memory.
func PeakTime(s *ledger.Snapshot) (at uint64, ok bool) { return PeakTimeOf(s, -1) }

// UsagePeak returns the most that a process is known to have used on the GPU of a part: NVML's
// readings, and what it had at its own peaks, most of which lie between two readings.
func UsagePeak(s *ledger.Snapshot, x *ledger.Part) uint64 {
	most := PartUsage(x)
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == x.Process && b.UUID == x.UUID {
			most = max(most, b.Peak)
		}
	}
	if peak := s.PeakOf(x.Process); peak != nil {
		return max(most, heldOn(peak.Books, x.UUID))
	}
	own := allocatedPeak(s, x.Process, x.Device)
	if t := s.TensorsOn(x.Process, x.Device); t != nil && t.Asleep+t.OlderAsleep == 0 {
		own = max(own, t.Peak)
	}
	if own > 0 {
		own += x.Foreign
	}
	return max(most, own)
}

// allocatedPeak returns the most that a process allocated and had on a device at one moment. Where it
// has several GPUs, that is known of each kind only.
func allocatedPeak(s *ledger.Snapshot, process int, device int32) (most uint64) {
	p, only := &s.Processes[process], true
	for i := range p.Totals {
		switch t := &p.Totals[i]; {
		case !t.Kind.Owned():
		case t.Device == device:
			most = max(most, t.PeakBytes)
		default:
			only = false
		}
	}
	if only && most > 0 && !ReportTensors(s)[process] {
		most = max(most, p.PeakBytes)
	}
	return most
}

// heldOn returns what a snapshot of one process has on a GPU.
func heldOn(s *ledger.Snapshot, uuid string) uint64 {
	var sum int64
	for _, h := range Holdings(s) {
		if !h.Apart() && h.UUID == uuid {
			sum += h.Live
		}
	}
	return uint64(max(sum, 0))
}

// PeakTimeOf is PeakTime of one process, or of all for -1.
func PeakTimeOf(s *ledger.Snapshot, process int) (at uint64, ok bool) {
	var most uint64
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PeakBytes > most && (process < 0 || i == process) {
			most, at = p.PeakBytes, p.PeakTime
		}
	}
	return at, most > 0
}
