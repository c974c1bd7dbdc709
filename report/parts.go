// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// PartUsage returns the sum of a part, which is NVML's figure.
func PartUsage(x *ledger.Part) uint64 {
	return x.Tensors + x.Cached + x.Driver + x.Rounding + x.Untraced + x.OlderAllocated + x.OlderCached + x.Foreign + x.Unplaced + x.Unexplained
}

// PartIdle returns how much of the rounding pools may hold unused, and how much else is uncertain.
func PartIdle(s *ledger.Snapshot, x *ledger.Part) uint64 {
	idle := uint64(0)
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == x.Process && b.UUID == x.UUID {
			idle += b.Idle
		}
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; p.Process == x.Process && p.Device == x.Device && isIdle(p) {
			idle += p.Held
		}
	}
	return min(idle, x.Rounding)
}

// isIdle reports whether a pool holds memory for certain and uses none.
func isIdle(p *ledger.Pool) bool { return p.Used == 0 && p.Least == p.Held }

// PartTerm is one term of the sum that makes up NVML's figure.
type PartTerm struct {
	Name  string
	Plane string
	Term  ledger.Term
}

// Bytes returns what a part has of the term.
func (t *PartTerm) Bytes(x *ledger.Part) uint64 { return t.Term.Bytes(x) }

// PartTerms are all terms of a part but the unexplained memory.
var PartTerms = []PartTerm{
	{PlaneName(PlaneTensor), PlaneTensor, ledger.TermTensors},
	{PlaneName(PlaneCache), PlaneCache, ledger.TermCached},
	{PlaneName(PlaneDriver), PlaneDriver, ledger.TermDriver},
	{MarkName(MarkRounding), PlaneRounding, ledger.TermRounding},
	{MarkName(MarkUntraced), PlaneTensor, ledger.TermUntraced},
	{MarkName(MarkOlder), PlaneBefore, ledger.TermOlderAllocated},
	{MarkName(MarkOlderCached), PlaneBefore, ledger.TermOlderCached},
	{MarkName(MarkForeign), PlaneBefore, ledger.TermForeign},
	{"allocations, GPU unknown", PlaneDriver, ledger.TermUnplaced},
}

// In returns what the term is called for processes. Of one that began within the session nothing is
// older than the attach: what it had before its first allocation is its CUDA context. A process
// that was only read has no attach.
func (t *PartTerm) In(s *ledger.Snapshot, processes ...int) string {
	if t.Name == MarkName(MarkForeign) && s.Unattached {
		return UnattachedName
	}
	if t.Name == MarkName(MarkForeign) && !slices.ContainsFunc(processes, func(p int) bool { return !BeganWithin(s, p) }) {
		return contextName
	}
	return t.Name
}

// BeganWithin reports whether a process began within the session.
func BeganWithin(s *ledger.Snapshot, process int) bool { return s.Processes[process].Begin > s.Begin }

const contextName = "CUDA context"

// UnattachedName is what NVML reports of a process beyond PyTorch's allocator, where nothing was
// attached.
const UnattachedName = "context, other CUDA"

// PartText returns "python3 [42] on cuda:0 GPU-a: NVML usage 6.0 GiB = tensors 4.1 GiB + PyTorch
// cache 1.6 GiB + context, other before attach 310 MiB + unexplained 2.0 MiB".
func PartText(s *ledger.Snapshot, x *ledger.Part) string {
	at := untrusted.Clean(x.UUID)
	if x.Device >= 0 {
		at = format.Join(format.Device(x.Device, ledger.Device), at)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: NVML usage %s =", format.Process(&s.Processes[x.Process]), at, format.Bytes(PartUsage(x)))
	sign := " "
	for i := range PartTerms {
		r := &PartTerms[i]
		if n := r.Bytes(x); n != 0 {
			b.WriteString(sign + r.In(s, x.Process) + " " + format.Bytes(n))
			sign = " + "
		}
		if x.Internal > 0 && r.Name == PlaneName(PlaneDriver) {
			fmt.Fprintf(&b, " (%s of it the driver's own)", format.Bytes(x.Internal))
		}
		if idle := PartIdle(s, x); idle > 0 && r.Name == PlaneName(PlaneRounding) {
			fmt.Fprintf(&b, " (up to %s of it idle in pools)", format.Bytes(idle))
		}
	}
	b.WriteString(sign + "unexplained " + format.Bytes(x.Unexplained))
	if text := BeyondText(s, x.Process, x.Taken); text != "" {
		b.WriteString(", without " + text)
	}
	if x.Unlisted > 0 {
		fmt.Fprintf(&b, ", without at least %s that is %s", format.Bytes(x.Unlisted), MarkName(MarkUnlisted))
	}
	return b.String()
}

// BeyondNVML is what all formats call ledger.Part.Beyond. It is in no sum.
const BeyondNVML = "beyond NVML's figure"

// BeyondText returns "2.00 MiB beyond NVML's figure, taken off context, other before attach" of a
// part of a process, or "" if nothing is beyond it.
func BeyondText(s *ledger.Snapshot, process int, taken ledger.Taken) string {
	var names []string
	for i := range PartTerms {
		if t := &PartTerms[i]; taken[t.Term] > 0 {
			names = append(names, t.In(s, process))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return format.Bytes(taken.Sum()) + " " + BeyondNVML + ", taken off " + strings.Join(names, " and ")
}
