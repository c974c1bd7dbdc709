// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ContextOnly is a process on one GPU where it allocated no memory. Context is what made its CUDA
// context, nil if the session did not see that.
type ContextOnly struct {
	Part    ledger.Part
	Usage   uint64
	Older   bool
	Context *ledger.Object
}

// ContextsOnly lists the running processes that use GPU memory, but allocated none during the
// session.
func ContextsOnly(s *ledger.Snapshot) (list []ContextOnly) {
	parts := s.Parts()
	for i := range parts {
		x := &parts[i]
		p := &s.Processes[x.Process]
		usage := PartUsage(x)
		if usage == 0 || p.End != 0 || x.Tensors+x.Untraced+x.Cached+x.Driver+x.OlderAllocated+x.OlderCached != 0 || took(s, x.Process) {
			continue
		}
		list = append(list, ContextOnly{*x, usage, p.Begin <= s.Begin, contextOn(s, x, IsOnlyPart(parts, x))})
	}
	return list
}

// took reports whether a process got GPU memory during the session.
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

const maxPIDs = 8 // that a sentence names

// contextOnlyTexts returns sentences such as "24 processes python3 [101, 102, …]: only a context,
// made at loader.py:33 worker: 500 MiB each, 11.7 GiB in all". Processes of one name whose contexts
// were made at the same line share a sentence.
func contextOnlyTexts(s *ledger.Snapshot, st callstack.Stacks) []string {
	var list []objectText
	type group struct {
		comm, line string
		older      bool
	}
	var order []group
	members := map[group][]ContextOnly{}
	for _, c := range ContextsOnly(s) {
		g := group{untrusted.Clean(s.Processes[c.Part.Process].Comm), "", c.Older}
		if c.Context != nil && !c.Older {
			g.line = LineText(st, c.Context.Stack, c.Context.API)
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
			what = "no GPU memory allocated since the attach; its context and older memory"
		}
		sum, text := holdText(members[g])
		list = append(list, objectText{sum, fmt.Sprintf("%s: %s: %s", contextHolders(s, members[g]), what, text)})
	}
	return mostTexts(list, "more context-only group")
}

// contextHolders returns "python3 [42]" or "24 processes python3 [101, 102, …]".
func contextHolders(s *ledger.Snapshot, list []ContextOnly) string {
	var pids []string
	seen := map[int]bool{}
	for _, c := range list {
		if !seen[c.Part.Process] {
			pids = append(pids, fmt.Sprint(s.Processes[c.Part.Process].PID))
		}
		seen[c.Part.Process] = true
	}
	if len(pids) == 1 {
		return format.Process(&s.Processes[list[0].Part.Process])
	}
	comm := untrusted.Clean(s.Processes[list[0].Part.Process].Comm)
	n := format.Count(uint64(len(pids)), "process")
	if len(pids) > maxPIDs {
		pids = append(pids[:maxPIDs], "…")
	}
	return format.Join(n, comm, "["+strings.Join(pids, ", ")+"]")
}

// holdText returns the sum, and "500 MiB" or "446 MiB to 510 MiB each, 11.7 GiB in all".
func holdText(list []ContextOnly) (sum uint64, text string) {
	least, most := list[0].Usage, list[0].Usage
	for _, c := range list {
		least, most, sum = min(least, c.Usage), max(most, c.Usage), sum+c.Usage
	}
	switch {
	case len(list) == 1:
		return sum, format.Bytes(sum)
	case format.Bytes(least) == format.Bytes(most):
		return sum, format.Bytes(least) + " each, " + format.Bytes(sum) + " in all"
	}
	return sum, format.Bytes(least) + " to " + format.Bytes(most) + " each, " + format.Bytes(sum) + " in all"
}
