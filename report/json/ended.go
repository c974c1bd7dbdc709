// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// EndedReport is what a process that has ended held at its peak.
type EndedReport struct {
	Process  int             `json:"process"` // index into the summary's processes
	PID      uint32          `json:"pid"`
	Comm     string          `json:"comm,omitempty"`
	Bytes    uint64          `json:"peak_bytes"` // the most that it had on one GPU: tensors where PyTorch reports them, else what it allocated
	AtNS     uint64          `json:"peak_ns"`    // since the session began
	Tensors  bool            `json:"tensors"`    // peak_bytes are of tensors
	OneGPU   bool            `json:"one_gpu"`    // it had memory on other GPUs, too, which is not in peak_bytes
	Balances []ExplainedPart `json:"balances"`   // what the memory was for then; walked_ns counts from then
}

// endedReports returns the highest peaks of processes that have ended.
func endedReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options) (list []EndedReport) {
	peaks := report.HighestPeaks(s)
	for _, x := range peaks[:min(len(peaks), o.Limit())] {
		p := &s.Processes[x.Process]
		r := EndedReport{
			Process: x.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), Bytes: x.Bytes, AtNS: report.Minus(x.Time, s.Begin),
			Tensors: x.Tensors, OneGPU: x.OneGPU, Balances: []ExplainedPart{},
		}
		for _, b := range purpose.AtPeak(x, o.Peaks[p.ID()], st) {
			r.Balances = append(r.Balances, explainedPart(p, &b.Balance, b.Time, b.Notes))
		}
		list = append(list, r)
	}
	return list
}
