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

// ContextOnlyReport is a process that holds memory of a GPU and allocated none there while it was
// traced. It may have managed, host or imported memory.
type ContextOnlyReport struct {
	Process  int           `json:"process"` // index into processes
	PID      uint32        `json:"pid"`
	Comm     string        `json:"comm,omitempty"`
	GPUUUID  string        `json:"gpu_uuid"`
	Usage    uint64        `json:"usage_bytes"`
	Older    bool          `json:"older"`              // the process is older than the session and may have allocated before
	API      string        `json:"api,omitempty"`      // function that created the context, if vramprof saw it
	Headline int           `json:"headline,omitempty"` //
	Stack    []FrameReport `json:"stack,omitempty"`
}

func contextOnlyReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options) (list []ContextOnlyReport) {
	for _, c := range report.ContextsOnly(s) {
		p := &s.Processes[c.Part.Process]
		r := ContextOnlyReport{
			Process: c.Part.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), GPUUUID: untrusted.Clean(c.Part.UUID), Usage: c.Usage, Older: c.Older,
		}
		if x := c.Context; x != nil {
			stack := frames.Visible(st, x.Stack, x.API)
			r.API, r.Headline, r.Stack = untrusted.Clean(x.API), frames.Headline(stack), stackReport(stack)
		}
		list = append(list, r)
	}
	return list
}

// ObjectReport sums the driver objects that one process created from one stack.
type ObjectReport struct {
	Process     int           `json:"process"` // index into processes
	PID         uint32        `json:"pid"`
	Device      string        `json:"device"`
	Kind        string        `json:"kind"` // context, green context, module, library, graph executable
	API         string        `json:"api"`
	Live        uint64        `json:"live"`
	Made        uint64        `json:"made"`                  // since the attach
	Before      uint64        `json:"in_baseline"`           // live when the process's baseline was taken
	NamedBytes  uint64        `json:"named_bytes"`           // sizes of code that the callers passed, of live objects
	Unexplained bool          `json:"grew_with_unexplained"` // number and unexplained memory grew together
	Headline    int           `json:"headline"`
	Stack       []FrameReport `json:"stack"`
	Incomplete  []string      `json:"incomplete,omitempty"` // what the figures or the stack lack, as in a site
}

func objectReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options) (list []ObjectReport) {
	grown := map[*ledger.Object]bool{}
	parts := s.Parts()
	for i := range parts {
		for _, x := range report.GrewWith(s, &parts[i], report.IsOnlyPart(parts, &parts[i])) {
			grown[x] = true
		}
	}
	for i := range s.Objects {
		x := &s.Objects[i]
		stack := frames.Visible(st, x.Stack, x.API)
		list = append(list, ObjectReport{
			Process: x.Process, PID: s.Processes[x.Process].PID, Device: format.Device(x.Device, x.Kind), Kind: format.Kind(x.Kind), API: untrusted.Clean(x.API),
			Live: x.Live, Made: x.Made, Before: x.Before, NamedBytes: x.Bytes, Unexplained: grown[x],
			Headline: frames.Headline(stack), Stack: stackReport(stack),
			Incomplete: report.ObjectMarks(s, st, x),
		})
	}
	return list
}
