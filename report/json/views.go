// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ViewVersion is the "version" of ViewReport, with the rule of LeaksVersion.
const ViewVersion = 1

// ViewReport is the JSON of a view: of its parts the view has one or more. Sizes are bytes, names
// ending in _ns are nanoseconds, unknown values are left out.
type ViewReport struct {
	Version    int             `json:"version"`
	View       string          `json:"view"` // summary, tree, table, stats, timeline, cache
	Host       string          `json:"host,omitempty"`
	Time       time.Time       `json:"time"` // time of the moment shown, UTC
	DurationNS uint64          `json:"duration_ns"`
	FromNS     uint64          `json:"from_ns,omitempty"` // stats and timeline of an interval: its begin, since the session began; its end is duration_ns
	Summary    *LeaksReport    `json:"summary,omitempty"`
	Ended      []EndedReport   `json:"ended,omitempty"` // of the view summary: processes that have ended, the highest peak first
	Tree       *BranchReport   `json:"tree,omitempty"`  // the root, which is no frame
	Rows       []RowReport     `json:"rows,omitempty"`  // largest first
	Stats      *StatsReport    `json:"stats,omitempty"`
	Timeline   *TimelineReport `json:"timeline,omitempty"`
}

// BranchReport is a frame of the call tree of GPU memory, main first.
type BranchReport struct {
	Function string         `json:"function,omitempty"`
	File     string         `json:"file,omitempty"`
	Line     int            `json:"line,omitempty"`
	Library  string         `json:"library,omitempty"`
	Language string         `json:"language,omitempty"`
	Bytes    int64          `json:"bytes"` // live bytes of all stacks through it
	Children []BranchReport `json:"children,omitempty"`
}

// RowReport is a line of the user's own code.
type RowReport struct {
	FrameReport
	Process        int    `json:"process"` // index into the summary's processes
	PID            uint32 `json:"pid"`
	Device         string `json:"device"`
	Plane          string `json:"plane"`
	LiveBytes      int64  `json:"live_bytes"`
	LiveCount      uint64 `json:"live_count"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	AllocatedCount uint64 `json:"allocated_count"`
	Incomplete     bool   `json:"incomplete,omitempty"` // the summary's sites have the reason

	Calls   []CalleeReport    `json:"calls,omitempty"`   // by which the stacks of the line differ, most bytes first
	Module  string            `json:"module,omitempty"`  // whose parameters, buffers or gradients most of it is: "model.blocks.*.mlp"
	Holders []HeldShareReport `json:"holders,omitempty"` // of memory from before the attach: who keeps it; they add up to live_bytes
}

// StatsReport describes all allocations, freed or not.
type StatsReport struct {
	Calls   []CallReport   `json:"calls"`            // by bytes
	Driver  []BucketReport `json:"driver,omitempty"` // allocations from CUDA by size
	Tensors []BucketReport `json:"tensors,omitempty"`
	Churn   []ChurnReport  `json:"churn"` // sites that allocate and free repeatedly
}

// CallReport sums the allocations of one function.
type CallReport struct {
	API   string `json:"api"`
	Kind  string `json:"kind"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
	Freed uint64 `json:"freed"` // count
}

// BucketReport counts allocations of at least From and less than 2 From bytes.
type BucketReport struct {
	From  uint64 `json:"from"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
}

// ChurnReport is a site that gave back most of what it allocated.
type ChurnReport struct {
	PID      uint32        `json:"pid"`
	API      string        `json:"api"`
	Count    uint64        `json:"allocated_count"`
	Freed    uint64        `json:"freed_count"`
	Bytes    uint64        `json:"allocated_bytes"`
	Headline int           `json:"headline"`
	Stack    []FrameReport `json:"stack"`
}

// TimelineReport is memory over time; all lists of a row have a value for each of TimesNS.
type TimelineReport struct {
	TimesNS []uint64         `json:"times_ns"` // since the attach
	Rows    []SeriesReport   `json:"rows"`
	Marks   []TimeMarkReport `json:"marks"`
}

// SeriesReport is the memory of one process on one GPU.
type SeriesReport struct {
	PID         uint32   `json:"pid"`
	Comm        string   `json:"comm,omitempty"`
	Device      string   `json:"device"`
	GPUUUID     string   `json:"gpu_uuid,omitempty"`
	Usage       []uint64 `json:"usage"` // NVML's last reading plus the change since then
	Tensor      []uint64 `json:"tensor"`
	Cache       []uint64 `json:"cache"`
	Driver      []uint64 `json:"driver"`
	Rounding    []uint64 `json:"rounding"`
	Before      []uint64 `json:"before"`
	Unexplained []uint64 `json:"unexplained"`
	Beyond      []uint64 `json:"beyond,omitempty"`  // what the others had beyond NVML's figure: in no GPU's sum; absent if always 0
	Host        []uint64 `json:"host"`              // on the host, in no GPU's sum
	Managed     []uint64 `json:"managed,omitempty"` // in no GPU's sum; absent if always 0
	Asleep      []uint64 `json:"asleep,omitempty"`  // in no GPU's sum; absent if always 0
}

// TimeMarkReport is an event on the timeline.
type TimeMarkReport struct {
	TimeNS   uint64        `json:"time_ns"` // since the attach
	Kind     string        `json:"kind"`    // out_of_memory, large, began, ended
	PID      uint32        `json:"pid"`
	Bytes    uint64        `json:"bytes,omitempty"`
	Headline int           `json:"headline,omitempty"`
	Stack    []FrameReport `json:"stack,omitempty"`
}

// View is what WriteView writes. Only stats uses Sizes, and only timeline uses Timeline.
type View struct {
	Name     string
	Snapshot *ledger.Snapshot
	Stacks   callstack.Stacks
	Sizes    *timeline.Sizes
	Timeline *timeline.Timeline
}

// WriteView writes a view as JSON.
func WriteView(w io.Writer, v View, o report.Options) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(newViewReport(v, o)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func newViewReport(v View, o report.Options) *ViewReport {
	s := v.Snapshot
	r := &ViewReport{Version: ViewVersion, View: v.Name, Host: untrusted.Clean(s.Host), Time: s.Wall.UTC(), DurationNS: s.End - s.Begin}
	if o.Since != nil {
		r.FromNS = report.Minus(o.Since.End, s.Begin)
	}
	r.Summary = NewLeaks(s, v.Stacks, report.Options{Top: o.Top, Steps: o.Steps})
	switch v.Name {
	case "summary":
		r.Ended = endedReports(s, v.Stacks, o)
	case "tree":
		root := branchReport(report.CallTree(s, v.Stacks, o))
		r.Tree = &root
	case "table":
		for _, x := range report.Rows(s, v.Stacks) {
			r.Rows = append(r.Rows, RowReport{
				FrameReport: stackReport([]callstack.Frame{x.Frame})[0], Process: x.Process, PID: s.Processes[x.Process].PID, Device: x.Device, Plane: x.Plane,
				LiveBytes: x.Bytes, LiveCount: x.Objects, AllocatedBytes: x.AllocBytes, AllocatedCount: x.Allocs, Incomplete: x.Incomplete,
				Calls: calleeReports(x.Calls), Module: x.Module, Holders: shareReports(x.Kept),
			})
		}
	case "stats":
		r.Stats = statsReport(v, o)
	case "timeline":
		r.Timeline = timelineReport(v, o)
	}
	return r
}

func branchReport(b *report.Branch) BranchReport {
	r := BranchReport{Bytes: b.Bytes}
	if b.Frame.Function != "" {
		f := stackReport([]callstack.Frame{b.Frame})[0]
		r.Function, r.File, r.Line, r.Library, r.Language = f.Function, f.File, f.Line, f.Library, f.Language
	}
	for _, c := range b.Children {
		r.Children = append(r.Children, branchReport(c))
	}
	return r
}

func statsReport(v View, o report.Options) *StatsReport {
	s := v.Snapshot
	r := &StatsReport{Calls: []CallReport{}, Churn: []ChurnReport{}}
	for _, c := range report.CallCounts(s, o.Since) {
		r.Calls = append(r.Calls, CallReport{c.API, c.Kind, c.Allocs, c.Bytes, c.Freed})
	}
	if v.Sizes != nil {
		r.Driver, r.Tensors = bucketReports(&v.Sizes.Driver), bucketReports(&v.Sizes.Tensors)
	}
	list := report.Churning(s, o.Since)
	for _, c := range list[:min(len(list), o.Limit())] {
		stack := frames.Visible(v.Stacks, c.Site.Stack, c.Site.API)
		r.Churn = append(r.Churn, ChurnReport{
			s.Processes[c.Site.Process].PID, untrusted.Clean(c.Site.API), c.Allocs, c.Freed, c.Bytes, frames.Headline(stack), stackReport(stack),
		})
	}
	return r
}

func bucketReports(list *[timeline.SizeBuckets]timeline.Bucket) (out []BucketReport) {
	for i, b := range list {
		if b.Count > 0 {
			out = append(out, BucketReport{1 << i, b.Count, b.Bytes})
		}
	}
	return out
}

var markKinds = map[timeline.MarkKind]string{timeline.OutOfMemory: "out_of_memory", timeline.Large: "large", timeline.Began: "began", timeline.Ended: "ended"}

func timelineReport(v View, o report.Options) *TimelineReport {
	t := v.Timeline
	r := &TimelineReport{Rows: []SeriesReport{}, Marks: []TimeMarkReport{}}
	for _, time := range t.Times {
		r.TimesNS = append(r.TimesNS, report.Minus(time, v.Snapshot.Begin))
	}
	for i := range t.Rows {
		x := &t.Rows[i]
		p := &t.Processes[x.Process]
		r.Rows = append(r.Rows, SeriesReport{
			p.PID, untrusted.Clean(p.Comm), format.Device(x.Device, ledger.Device), untrusted.Clean(x.UUID),
			x.Usage, x.Tensors, x.Cached, x.Driver, x.Rounding, x.Before, x.Unexplained, x.Beyond, x.Host, x.Managed, x.Asleep,
		})
	}
	for _, m := range t.Marks {
		out := TimeMarkReport{TimeNS: report.Minus(m.Time, v.Snapshot.Begin), Kind: markKinds[m.Kind], PID: t.Processes[m.Process].PID, Bytes: m.Size}
		if m.Kind == timeline.OutOfMemory || m.Kind == timeline.Large {
			stack := frames.Visible(v.Stacks, m.Stack, m.API)
			out.Headline, out.Stack = frames.Headline(stack), stackReport(stack)
		}
		r.Marks = append(r.Marks, out)
	}
	return r
}
