// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"testing"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestOutcomeRequiresTheLeakFirst checks that only the leaking line, listed before all others of
// its process, counts as found.
func TestOutcomeRequiresTheLeakFirst(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7}, {PID: 8}},
		Sites:     []ledger.Site{{Stack: 1}, {Stack: 2}},
	}
	o := &observation{Frames: []frame{{Function: "AccumulateGrad::apply"}, {Function: "other"}}, Stacks: map[uint64][]int{1: {0}, 2: {1}}}
	line := func(process, n int, class verdict.Class) verdict.Group {
		g := verdict.Group{Process: process, Verdict: verdict.Verdict{Class: class}}
		g.Line = callstack.Frame{File: "/src/x.py", Line: n}
		return g
	}
	backward := func(site int, class verdict.Class) verdict.Group {
		g := verdict.Group{Sites: []int{site}, Verdict: verdict.Verdict{Class: class}}
		g.Line = callstack.Frame{Function: "apply"}
		return g
	}
	leaking := program{Name: "x.py", Leaking: true, Lines: []int{3, 5}, Frames: "AccumulateGrad"}
	harmless := program{Name: "x.py"}
	for name, c := range map[string]struct {
		program
		groups []verdict.Group
		found  bool
		alarms int
		behind bool
	}{
		"found":                         {leaking, []verdict.Group{line(0, 5, verdict.Leaking), line(0, 9, verdict.Growing)}, true, 0, false},
		"found in one of two processes": {leaking, []verdict.Group{line(1, 3, verdict.Leaking), line(0, 3, verdict.Steady)}, true, 0, false},
		"both lines":                    {leaking, []verdict.Group{line(0, 5, verdict.Leaking), line(0, 3, verdict.Leaking)}, true, 0, false},
		"of the backward pass":          {leaking, []verdict.Group{backward(0, verdict.Leaking)}, true, 0, false},
		"of another backward pass":      {leaking, []verdict.Group{backward(1, verdict.Leaking)}, false, 1, false},
		"second":                        {leaking, []verdict.Group{line(0, 9, verdict.Leaking), line(0, 3, verdict.Leaking)}, false, 1, true},
		"first, and another":            {leaking, []verdict.Group{line(0, 3, verdict.Leaking), line(0, 9, verdict.Leaking)}, true, 1, false},
		"only growing":                  {leaking, []verdict.Group{line(0, 3, verdict.Growing)}, false, 0, false},
		"harmless":                      {harmless, []verdict.Group{line(0, 3, verdict.Growing)}, false, 0, false},
		"called leaking":                {harmless, []verdict.Group{line(0, 3, verdict.Leaking)}, false, 1, false},
	} {
		out := (&observed{program: c.program, PIDs: []uint32{7, 8}}).outcome(o, s, c.groups)
		if (out.first != nil) != c.found || len(out.alarms) != c.alarms || (out.behind != nil) != c.behind {
			t.Errorf("%s: found %v, %d alarms, behind another %v; want %v, %d, %v", name, out.first != nil, len(out.alarms), out.behind != nil, c.found, c.alarms, c.behind)
		}
	}
}
