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

// FrameReport is one line of a stack.
type FrameReport struct {
	Function string `json:"function"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Library  string `json:"library,omitempty"` // path of the program or library, native frames only
	BuildID  string `json:"build_id,omitempty"`
	Address  uint64 `json:"address,omitempty"` // ELF virtual address
	Language string `json:"language"`          // "python", "native", or "mark": a remark such as [truncated: …]
	Inlined  bool   `json:"inlined,omitempty"` // inlined into the next frame
}

// FailureReport sums the failed allocations of one site with one result.
type FailureReport struct {
	Process   int           `json:"process"`
	PID       uint32        `json:"pid"`
	Comm      string        `json:"comm,omitempty"`
	Device    string        `json:"device"`
	Kind      string        `json:"kind"`
	API       string        `json:"api"`
	Result    int32         `json:"result"` // CUresult or cudaError_t
	Error     string        `json:"error"`
	Count     uint64        `json:"count"`
	Bytes     uint64        `json:"bytes"` // sum of the requested sizes
	LastBytes uint64        `json:"last_bytes"`
	LastAgoNS uint64        `json:"last_ago_ns"`
	Headline  int           `json:"headline"`
	Stack     []FrameReport `json:"stack"`

	Incomplete []string `json:"incomplete,omitempty"` // what the figures or the stack lack, as in a site
}

// ProcessReport is one process: a pid between two execs or exits.
type ProcessReport struct {
	PID      uint32          `json:"pid"`
	Comm     string          `json:"comm,omitempty"`
	Exe      string          `json:"exe,omitempty"`
	Ended    bool            `json:"ended"`
	Replaced bool            `json:"replaced,omitempty"` // it ended with an exec; another entry with this pid is the new program
	Devices  []string        `json:"devices,omitempty"`  // UUID of each CUDA ordinal, "" for one that is unknown
	Workload *WorkloadReport `json:"workload,omitempty"`
	Totals   []TotalReport   `json:"totals"`

	DeducedBytes uint64 `json:"deduced_bytes,omitempty"` // allocations whose GPU was deduced only from the growth of NVML's figures
	SegmentsOnly string `json:"segments_only,omitempty"` // why its PyTorch reports no tensors

	LostEvents uint64         `json:"lost_events,omitempty"` // events of this process lost to full tables or rings
	Beyond     []BeyondReport `json:"beyond,omitempty"`      // shared tables in which it used up its share
}

// BeyondReport counts how often a process had used up its share of a shared table.
type BeyondReport struct {
	Table string `json:"table"`
	Count uint64 `json:"count"`
}

// TotalReport sums a process on one device and of one kind.
type TotalReport struct {
	Device         string `json:"device"`
	Kind           string `json:"kind"`
	LiveBytes      uint64 `json:"live_bytes"`
	LiveCount      uint64 `json:"live_count"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	AllocatedCount uint64 `json:"allocated_count"`
	PeakBytes      uint64 `json:"peak_bytes"`
	PeakAfterNS    uint64 `json:"peak_after_ns"` // since the attach
}

// LossesReport counts events and stacks that the ledger lacks; see ledger.Stats.
type LossesReport struct {
	Events          uint64            `json:"events"`
	LostEvents      uint64            `json:"lost_events"`
	LostReasons     map[string]uint64 `json:"lost_reasons,omitempty"` // part of lost_events, by reason
	UnmatchedFrees  uint64            `json:"unmatched_frees"`
	ReusedAddresses uint64            `json:"reused_addresses"`
	Evicted         uint64            `json:"evicted"`
	UnknownSizes    uint64            `json:"unknown_sizes"` // live allocations counted with 0 bytes
	Stacks          uint64            `json:"stacks"`
	WithoutStack    uint64            `json:"without_stack"`
	Missing         map[string]uint64 `json:"missing,omitempty"` // part of without_stack, by reason
	Truncated       map[string]uint64 `json:"truncated"`
	Torn            uint64            `json:"torn"`
	Tracing         *TracingReport    `json:"tracing,omitempty"`
}

// tracingReport returns nil if no tensors were traced, or the price of their probe is not known.
func tracingReport(c *ledger.TensorCost) *TracingReport {
	if c.Price == 0 || c.Session.PID == 0 {
		return nil
	}
	share := func(c ledger.CostShare) ShareReport {
		return ShareReport{PID: c.PID, Share: c.Share(), Reports: c.Reports, SpanNS: c.Span}
	}
	return &TracingReport{ReportNS: c.Price, Session: share(c.Session), Highest: share(c.Highest), Budget: float64(c.Budget) / 1e6, AwayNS: c.Away, AwayPID: c.AwayPID, Paused: c.Paused}
}
