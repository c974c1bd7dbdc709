// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/imported"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// FailuresText returns the number of failed allocations.
func FailuresText(s *ledger.Snapshot) string {
	var count uint64
	for i := range s.Failures {
		count += s.Failures[i].Count
	}
	return format.Count(count, "failed allocation") + " (vramprof leaks shows them with their stacks)"
}

// Remarks returns sentences on what figures leave open: memory held by pools, imported memory
// of processes that ended, memory freed without a free, processes that ended, and unknown tensors.
func Remarks(s *ledger.Snapshot, st callstack.Stacks) []string {
	list := append(objectTexts(s, st), contextOnlyTexts(s, st)...)
	list = append(append(list, poolTexts(s)...), imported.Remarks(s)...)
	for i := range s.Processes {
		if why := SegmentsOnly(s, st, i); why != "" {
			list = append(list, format.Process(&s.Processes[i])+": segments only, no tensors: "+why)
		}
	}
	for i := range s.Releases {
		r := &s.Releases[i]
		list = append(list, fmt.Sprintf("%s: freed by %s: %s, %s", format.Process(&s.Processes[r.Process]),
			format.Cause(r.Cause), format.Count(r.Objects, "allocation"), format.Bytes(r.Bytes)))
	}
	return append(list, endedTexts(s)...)
}

// endedTexts says that what is shown for processes that have ended is not held any more.
func endedTexts(s *ledger.Snapshot) (list []string) {
	left, listed := make([]uint64, len(s.Processes)), make([]bool, len(s.Processes))
	parts := s.Parts()
	for i := range parts {
		left[parts[i].Process] += PartUsage(&parts[i])
		listed[parts[i].Process] = true
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		for _, t := range p.Totals {
			if InSums(t.Kind) && t.Kind != ledger.Tensor && !(listed[i] && t.Kind.Owned()) {
				left[i] += t.LiveBytes
			}
		}
		if p.End != 0 && left[i] > 0 {
			list = append(list, fmt.Sprintf("%s %s %s ago and gave back the %s shown for it", format.Process(p), howEnded(p), format.Span(Minus(s.End, p.End)), format.Bytes(left[i])))
		}
	}
	return list
}

// poolTexts returns "python3 [42] on cuda:0: 2 async pools: 1.2 GiB used, may hold up to 3.0 GiB"
// for each process and device whose pools hold, or may hold, more than is used.
func poolTexts(s *ledger.Snapshot) []string {
	var list []string
	for i := 0; i < len(s.Pools); {
		first := &s.Pools[i]
		var n, used, least, most, idle uint64 // idle: of pools that keep all, without an allocation
		for ; i < len(s.Pools) && s.Pools[i].Process == first.Process && s.Pools[i].Device == first.Device; i++ {
			if x := &s.Pools[i]; !x.Destroyed {
				n++
				used += x.Used
				least += x.Least
				most += x.Held
				if isIdle(x) {
					idle += x.Held
				}
			}
		}
		p := &s.Processes[first.Process]
		if most <= least && idle == 0 || p.End != 0 {
			continue
		}
		hold := "may hold up to"
		if most <= least {
			hold = "they hold"
			if n == 1 {
				hold = "it holds"
			}
		}
		noun := "async pool"
		if n > 1 {
			noun = format.Count(n, noun)
		}
		at := ""
		if first.Device >= 0 {
			at = " on " + format.Device(first.Device, ledger.Async)
		}
		list = append(list, fmt.Sprintf("%s%s: %s: %s used, %s %s", format.Process(p), at, noun, format.Bytes(used), hold, format.Bytes(most)))
	}
	return list
}
