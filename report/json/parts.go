// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func stackReport(stack []callstack.Frame) []FrameReport {
	list := make([]FrameReport, len(stack))
	for i := range stack {
		f := &stack[i]
		r := FrameReport{Function: frames.Name(f), File: untrusted.Clean(f.File), Line: f.Line, Address: f.Address, Language: "native", Inlined: f.Inlined}
		switch {
		case f.Mark:
			r.Language = "mark"
		case f.Python:
			r.Language = "python"
		case f.Mapping != nil:
			r.Library, r.BuildID = untrusted.Clean(f.Mapping.Path), untrusted.Clean(f.Mapping.BuildID)
		}
		list[i] = r
	}
	return list
}

func failureReport(s *ledger.Snapshot, st callstack.Stacks, o report.Options, f *ledger.Failure) FailureReport {
	p := &s.Processes[f.Process]
	stack := frames.Visible(st, f.Stack, f.API)
	return FailureReport{
		Process: f.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), Device: format.Device(f.Device, f.Kind), Kind: format.Kind(f.Kind), API: untrusted.Clean(f.API),
		Result: f.Result, Error: format.Result(f.Result), Count: f.Count, Bytes: f.Bytes, LastBytes: f.LastBytes,
		LastAgoNS: report.Minus(s.End, f.LastTime), Headline: frames.Headline(stack), Stack: stackReport(stack),
		Incomplete: report.FailureMarks(s, st, f),
	}
}

func processReport(s *ledger.Snapshot, p *ledger.Process) ProcessReport {
	r := ProcessReport{LostEvents: p.Lost, DeducedBytes: p.Deduced, PID: p.PID, Comm: untrusted.Clean(p.Comm), Exe: untrusted.Clean(p.Exe), Ended: p.End != 0, Replaced: p.Replaced, Workload: NewWorkload(p.Workload), Totals: []TotalReport{}}
	for _, uuid := range p.Devices {
		r.Devices = append(r.Devices, untrusted.Clean(uuid))
	}
	for _, b := range p.Beyond {
		r.Beyond = append(r.Beyond, BeyondReport(b))
	}
	for _, t := range p.Totals {
		r.Totals = append(r.Totals, TotalReport{
			format.Device(t.Device, t.Kind), format.Kind(t.Kind), t.LiveBytes, t.LiveObjects, t.AllocBytes, t.AllocObjects,
			t.PeakBytes, report.Minus(t.PeakTime, s.Begin),
		})
	}
	return r
}

// byReason returns counts by reasons that are clean; nil if there are none.
func byReason(counts map[string]uint64) map[string]uint64 {
	var clean map[string]uint64
	for reason, n := range counts {
		if clean == nil {
			clean = map[string]uint64{}
		}
		clean[untrusted.Clean(reason)] += n
	}
	return clean
}

func lossesReport(st *ledger.Stats) LossesReport {
	r := LossesReport{
		Events: st.Events, LostEvents: st.Lost, UnmatchedFrees: st.UnmatchedFrees, ReusedAddresses: st.Reused, Evicted: st.Evicted,
		UnknownSizes: st.UnknownSizes,
		Stacks:       st.Stacks, WithoutStack: st.NoStack, Truncated: map[string]uint64{}, Torn: st.Torn,
	}
	r.LostReasons, r.Missing = byReason(st.LostFor), byReason(st.Missing)
	for reason, n := range st.Truncated {
		r.Truncated[untrusted.Clean(reason)] += n
	}
	r.Tracing = tracingReport(&st.Cost)
	return r
}

// tracingReport returns nil if no tensors were traced, or the price of their probe is not known.
func tracingReport(c *ledger.TensorCost) *TracingReport {
	if c.Price == 0 || c.Session.PID == 0 {
		return nil
	}
	share := func(c ledger.CostShare) ShareReport {
		return ShareReport{PID: c.PID, Share: c.Share(), Reports: c.Reports, SpanNS: c.Span}
	}
	return &TracingReport{ReportNS: c.Price, Session: share(c.Session), Highest: share(c.Highest), Budget: float64(c.Budget) / 1e6, AwayNS: c.Away}
}
