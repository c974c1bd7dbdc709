// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// LineReport sums the sites of one line of code: of one kind, on one device of a process.
type LineReport struct {
	Process     int            `json:"process"` // index into processes
	PID         uint32         `json:"pid"`
	Device      string         `json:"device"`
	Kind        string         `json:"kind"`
	Line        FrameReport    `json:"line"`             // the headline of its sites
	Calls       []CalleeReport `json:"calls,omitempty"`  // by which its stacks differ, most bytes first
	Module      string         `json:"module,omitempty"` // whose parameters, buffers or gradients most of it are: "model.blocks.*.mlp"
	Sites       int            `json:"sites"`
	LiveBytes   uint64         `json:"live_bytes"`
	LiveCount   uint64         `json:"live_count"`
	GrowthBytes int64          `json:"growth_bytes"` // as in a site
}

// CalleeReport is a function that a line called.
type CalleeReport struct {
	Function  string `json:"function"`
	LiveBytes uint64 `json:"live_bytes"`
}

func lineReport(s *ledger.Snapshot, r *lines.Row) LineReport {
	return LineReport{
		Process: r.Process, PID: s.Processes[r.Process].PID, Device: format.Device(r.Device, r.Kind), Kind: format.Kind(r.Kind),
		Line: stackReport([]callstack.Frame{r.Frame})[0], Calls: calleeReports(r.Calls), Module: r.Module,
		Sites: len(r.Sites), LiveBytes: r.LiveBytes, LiveCount: r.LiveObjects, GrowthBytes: r.Growth,
	}
}

func calleeReports(list []apart.Call) (calls []CalleeReport) {
	for _, x := range list {
		calls = append(calls, CalleeReport{untrusted.Clean(x.Name), x.Bytes})
	}
	return calls
}

// lineReports returns the rows of the sites that a report is of, the largest of each list.
func lineReports(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement, o report.Options, lists ...[]ledger.Site) (rows []LineReport) {
	book := lines.New(s, st, j)
	for _, list := range lists {
		of := book.Rows(list)
		for i := range of[:min(len(of), o.Limit())] {
			rows = append(rows, lineReport(s, &of[i]))
		}
	}
	return rows
}

// groupLine returns the row of the line of a verdict.
func groupLine(s *ledger.Snapshot, book *lines.Book, sites []int) (calls []CalleeReport, module string) {
	list := make([]ledger.Site, 0, len(sites))
	for _, i := range sites {
		list = append(list, s.Sites[i])
	}
	rows := book.Rows(list)
	if len(rows) != 1 {
		return nil, ""
	}
	return calleeReports(rows[0].Calls), rows[0].Module
}
