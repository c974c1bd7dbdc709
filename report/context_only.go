// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ContextOnlyReport is a process that holds memory of a GPU and allocated none there while it was traced. It may have managed, host or imported memory.
type ContextOnlyReport struct {
	Process  int           `json:"process"` // index into processes
	PID      uint32        `json:"pid"`
	Comm     string        `json:"comm,omitempty"`
	GPUUUID  string        `json:"gpu_uuid"`
	Usage    uint64        `json:"usage_bytes"`
	Older    bool          `json:"older"`              // than the tracing: it may have allocated before
	API      string        `json:"api,omitempty"`      // that made the context, where that was seen
	Headline int           `json:"headline,omitempty"` //
	Stack    []FrameReport `json:"stack,omitempty"`
}

// contextOnly is a process on one GPU that allocated no memory there, and what made its context, nil if that was not seen.
type contextOnly struct {
	part    ledger.Part
	usage   uint64
	older   bool
	context *ledger.Object
}

func contextsOnly(s *ledger.Snapshot) (list []contextOnly) {
	parts := s.Parts()
	for i := range parts {
		x := &parts[i]
		p := &s.Processes[x.Process]
		usage := partUsage(x)
		if usage == 0 || p.End != 0 || x.Tensors+x.Cached+x.Driver+x.OlderAllocated+x.OlderCached != 0 || took(s, x.Process) {
			continue
		}
		list = append(list, contextOnly{*x, usage, p.Begin <= s.Begin, contextOn(s, x, onlyPart(parts, x))})
	}
	return list
}

// took says whether a process ever got memory of a GPU while it was traced.
func took(s *ledger.Snapshot, process int) bool {
	return slices.ContainsFunc(s.Processes[process].Totals, func(t ledger.Total) bool { return t.Kind.Owned() || t.Kind == ledger.Tensor }) ||
		slices.ContainsFunc(s.Tensors, func(t ledger.Tensors) bool { return t.Process == process && t.Device >= 0 })
}

func contextOn(s *ledger.Snapshot, x *ledger.Part, only bool) *ledger.Object {
	for i := range s.Objects {
		if o := &s.Objects[i]; (o.Kind == ledger.DriverContext || o.Kind == ledger.GreenContext) && o.Live > 0 && isOn(s, o, x, only) {
			return o
		}
	}
	return nil
}

func contextOnlyReports(s *ledger.Snapshot, st callstack.Stacks, o Options) (list []ContextOnlyReport) {
	for _, c := range contextsOnly(s) {
		p := &s.Processes[c.part.Process]
		r := ContextOnlyReport{
			Process: c.part.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), GPUUUID: untrusted.Clean(c.part.UUID), Usage: c.usage, Older: c.older,
		}
		if x := c.context; x != nil {
			stack := frames.Visible(st, x.Stack, x.API)
			r.API, r.Headline, r.Stack = untrusted.Clean(x.API), frames.Headline(stack), stackReport(stack)
		}
		list = append(list, r)
	}
	return list
}

const maxPIDs = 8 // that a sentence names

// contextOnlyTexts is "24 processes python3 [101, 102, …]: only a context, made at loader.py:33 worker: 500 MiB each,
// 11.7 GiB in all"; processes with one name whose contexts were made in one place share a sentence.
func contextOnlyTexts(s *ledger.Snapshot, st callstack.Stacks) []string {
	var list []objectText
	type group struct {
		comm, line string
		older      bool
	}
	var order []group
	members := map[group][]contextOnly{}
	for _, c := range contextsOnly(s) {
		g := group{untrusted.Clean(s.Processes[c.part.Process].Comm), "", c.older}
		if c.context != nil && !c.older {
			g.line = lineText(st, c.context.Stack, c.context.API)
		}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], c)
	}
	for _, g := range order {
		what := "no GPU memory but a context"
		if g.line != "" {
			what += ", made at " + g.line
		}
		if g.older {
			what = "no GPU memory allocated since tracing began; its context and older memory"
		}
		sum, text := holdText(members[g])
		list = append(list, objectText{sum, fmt.Sprintf("%s: %s: %s", contextHolders(s, members[g]), what, text)})
	}
	return mostTexts(list, "more context-only group")
}

// contextHolders is "python3 [42]", "24 processes python3 [101, 102, …]".
func contextHolders(s *ledger.Snapshot, list []contextOnly) string {
	var pids []string
	seen := map[int]bool{}
	for _, c := range list {
		if !seen[c.part.Process] {
			pids = append(pids, fmt.Sprint(s.Processes[c.part.Process].PID))
		}
		seen[c.part.Process] = true
	}
	if len(pids) == 1 {
		return processName(&s.Processes[list[0].part.Process])
	}
	comm := untrusted.Clean(s.Processes[list[0].part.Process].Comm)
	n := counted(uint64(len(pids)), "process")
	if len(pids) > maxPIDs {
		pids = append(pids[:maxPIDs], "…")
	}
	return words(n, comm, "["+strings.Join(pids, ", ")+"]")
}

// holdText is the sum, and "500 MiB", "446 MiB to 510 MiB each, 11.7 GiB in all".
func holdText(list []contextOnly) (sum uint64, text string) {
	least, most := list[0].usage, list[0].usage
	for _, c := range list {
		least, most, sum = min(least, c.usage), max(most, c.usage), sum+c.usage
	}
	switch {
	case len(list) == 1:
		return sum, BytesText(sum)
	case BytesText(least) == BytesText(most):
		return sum, BytesText(least) + " each, " + BytesText(sum) + " in all"
	}
	return sum, BytesText(least) + " to " + BytesText(most) + " each, " + BytesText(sum) + " in all"
}
