// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// opening returns nil if the page opens at the end.
func (o *overTime) opening() *openingData {
	s := o.b.s
	var ended []int
	for i := range s.Processes {
		switch p := &s.Processes[i]; {
		case !heldMemory(s, i):
		case p.End == 0:
			return nil
		default:
			ended = append(ended, i)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	end := format.Count(uint64(len(ended)), "process") + " have ended"
	if p := &s.Processes[ended[0]]; len(ended) == 1 {
		end = format.Process(p) + " ended at " + format.Span(since(p.End, s.Begin))
		if x := s.PeakOf(ended[0]); x != nil {
			end = report.EndedText(s, x) + ": " + report.HeldText(x)
		}
	}
	if m := o.lastError(); m != nil {
		end = o.errorText(m) + end
		if o.peak < 0 || m.Time >= o.tl.Times[o.peak] { // else the program went on with more than before
			return &openingData{o.gridAt(m.Time), end, "the error"}
		}
	}
	if o.peak < 0 {
		return nil
	}
	return &openingData{o.gridAt(o.tl.Times[o.peak]), end, "the peak"}
}

// heldMemory reports whether a process ever had memory of a GPU.
func heldMemory(s *ledger.Snapshot, process int) bool {
	return slices.ContainsFunc(s.Processes[process].Totals, func(t ledger.Total) bool { return t.Kind.Owned() && t.PeakBytes > 0 }) ||
		slices.ContainsFunc(s.Tensors, func(t ledger.Tensors) bool { return t.Process == process && t.Device != ledger.CPUDevice && t.Peak > 0 })
}

func (o *overTime) lastError() *timeline.Mark {
	for i := len(o.tl.Marks) - 1; i >= 0; i-- {
		if m := &o.tl.Marks[i]; m.Kind == timeline.OutOfMemory {
			return m
		}
	}
	return nil
}

// errorText returns "python3 [42] ran out of memory at 5.9s (wanted 16.0 MiB); ".
func (o *overTime) errorText(m *timeline.Mark) string {
	e := report.OOM{Size: m.Size}
	return format.Process(&o.tl.Processes[m.Process]) + " ran out of memory at " + format.Span(since(m.Time, o.b.s.Begin)) + " (wanted " + e.SizeText() + "); "
}

// gridAt returns the first moment of the grid that is not before a time.
func (o *overTime) gridAt(time uint64) int {
	at, _ := slices.BinarySearchFunc(o.grid, time, func(t int, time uint64) int {
		return int(min(max(int64(o.tl.Times[t]-time), -1), 1))
	})
	return min(at, len(o.grid)-1)
}
