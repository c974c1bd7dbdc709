// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// VerdictReport is the verdict on a line of code.
type VerdictReport struct {
	Class       string      `json:"class"` // leaking, growing, cache, steady, one-off, unknown
	Score       float64     `json:"score"` // 0 to 1: probability that the next time window leaves survivors too
	Rate        float64     `json:"bytes_per_second"`
	RateLow     float64     `json:"bytes_per_second_low"` // 95 % interval
	RateHigh    float64     `json:"bytes_per_second_high"`
	NeedsNS     uint64      `json:"needs_ns,omitempty"` // of growing: how much longer to trace until it can be decided
	UntilFullNS uint64      `json:"until_full_ns,omitempty"`
	Evidence    string      `json:"evidence"`
	Object      string      `json:"object,omitempty"`
	Process     int         `json:"process"` // index into processes
	PID         uint32      `json:"pid"`
	Device      string      `json:"device"`
	Kind        string      `json:"kind"`
	LiveBytes   uint64      `json:"live_bytes"`
	LiveCount   uint64      `json:"live_count"`
	Line        FrameReport `json:"line"`

	Calls  []CalleeReport `json:"calls,omitempty"`  // as in lines
	Module string         `json:"module,omitempty"` // likewise

	Holders []HeldShareReport `json:"holders,omitempty"`        // who keeps live_bytes, as in a site
	PerStep uint64            `json:"bytes_per_step,omitempty"` // of a training whose steps are known

	// Where steps may be missing; without the second the growth is at least the first.
	PerStepLow  uint64 `json:"bytes_per_step_low,omitempty"`
	PerStepHigh uint64 `json:"bytes_per_step_high,omitempty"`
}

func verdictReports(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement, kept []*report.Kept, o report.Options) (list []VerdictReport, advice []string) {
	list, advice = []VerdictReport{}, []string{}
	book := lines.New(s, st, j)
	for i := range j.Groups {
		g := &j.Groups[i]
		calls, module := groupLine(s, book, g.Sites)
		list = append(list, VerdictReport{
			Calls: calls, Module: module,
			Class: g.Class.String(), Score: g.Score, Rate: g.Rate.Value, RateLow: g.Rate.Low, RateHigh: g.Rate.High, NeedsNS: uint64(max(g.Needs, 0)), UntilFullNS: uint64(max(g.UntilFull, 0)),
			Evidence: untrusted.Clean(g.Evidence), Object: g.Object.String(), Process: g.Process, PID: s.Processes[g.Process].PID,
			Device: format.Device(g.Device, g.Kind), Kind: format.Kind(g.Kind), LiveBytes: g.LiveBytes, LiveCount: g.LiveObjects,
			Line: stackReport([]callstack.Frame{g.Line})[0], Holders: groupHolders(s, kept[g.Process], g.Sites),
		})
		if x := o.Steps.Of(s.Processes[g.Process].PID, s.Processes[g.Process].Begin, s.Processes[g.Process].End); x != nil {
			if rate := x.PerStep(g.PerSecond()); rate.Low == rate.High {
				list[i].PerStep = rate.Low
			} else {
				list[i].PerStepLow, list[i].PerStepHigh = rate.Low, rate.High
			}
		}
	}
	return list, append(advice, j.Advice...)
}
