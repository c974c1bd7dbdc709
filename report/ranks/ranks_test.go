// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// snapshot is of processes that allocated, by pid.
func snapshot(list ...ledger.Process) *ledger.Snapshot {
	s := &ledger.Snapshot{Processes: list}
	for i := range list {
		if list[i].PID == 0 {
			list[i].PID = uint32(10 + i)
		}
		list[i].Comm = "python3"
		s.Sites = append(s.Sites, ledger.Site{Process: i})
	}
	return s
}

func ranked(list ...int) (processes []ledger.Process) {
	for _, n := range list {
		processes = append(processes, ledger.Process{Workload: ledger.Workload{Rank: fmt.Sprint(n), WorldSize: "8"}})
	}
	return processes
}

func workload(w ledger.Workload) ledger.Process { return ledger.Process{Workload: w} }

func TestJobs(t *testing.T) {
	for name, c := range map[string]struct {
		s    *ledger.Snapshot
		want []int
	}{
		"workers of a server":         {snapshot(make([]ledger.Process, 3)...), []int{0, 0, 0}},
		"two programs":                {snapshot(ledger.Process{Exe: "/a"}, ledger.Process{Exe: "/b"}), []int{0, 1}},
		"two users":                   {snapshot(ledger.Process{User: 1001}, ledger.Process{User: 1002}), []int{0, 1}},
		"two named jobs":              {snapshot(workload(ledger.Workload{Job: "a"}), workload(ledger.Workload{Job: "b"})), []int{0, 1}},
		"two containers":              {snapshot(workload(ledger.Workload{Container: "a"}), workload(ledger.Workload{Container: "b"})), []int{0, 1}},
		"a job with a pod each":       {snapshot(workload(ledger.Workload{Job: "a", Pod: "x", Container: "c"}), workload(ledger.Workload{Job: "a", Pod: "y", Container: "d"})), []int{0, 0}},
		"two torchruns without names": {snapshot(ranked(0, 1, 2, 0, 1, 2)...), []int{0, 0, 0, 1, 1, 1}},
		"of interleaved pids":         {snapshot(ranked(0, 0, 1, 1)...), []int{0, 1, 0, 1}},
		"a rank that ended":           {snapshot(ledger.Process{}, ledger.Process{End: 5}), []int{0, 1}},
	} {
		j := New(c.s)
		var got []int
		for i := range c.s.Processes {
			got = append(got, j.Of(i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: jobs %v, want %v", name, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	eight, plain := snapshot(ranked(0, 1, 2, 3, 4, 5, 6, 7)...), snapshot(make([]ledger.Process, 6)...)
	ended := snapshot(ledger.Process{End: 1}, ledger.Process{End: 1})
	idle := snapshot(ranked(0, 1)...)
	idle.Sites = idle.Sites[:1]
	for _, c := range []struct {
		s         *ledger.Snapshot
		processes []int
		want      string
	}{
		{eight, []int{0, 1, 2, 3, 4, 5, 6, 7}, "in each of 8 processes (ranks 0 to 7)"},
		{eight, []int{0, 1, 2, 3, 4, 6, 7}, "in 7 of 8 processes (not in rank 5)"},
		{eight, []int{0, 3, 4, 6}, "in 4 of 8 processes (ranks 0, 3, 4, 6)"},
		{eight, []int{3}, "only in rank 3 of 8 processes"},
		{plain, []int{0, 1, 2, 3, 4, 5}, "in each of 6 processes"},
		{plain, []int{0, 1, 2, 3, 4}, "in each of 5 processes"}, // the sixth may do other work
		{plain, []int{4}, ""},
		{ended, []int{0, 1}, "in each of 2 ended processes"},
		{idle, []int{0}, ""}, // the other allocates nothing
	} {
		if got := New(c.s).Text(c.processes); got != c.want {
			t.Errorf("%v: %q, want %q", c.processes, got, c.want)
		}
	}
}

func group(process int, device int32, class verdict.Class, rate float64, live uint64) verdict.Group {
	g := verdict.Group{Process: process, Device: device, LiveBytes: live, LiveObjects: 1, Sites: []int{process}}
	g.Class, g.Line = class, callstack.Frame{Function: "step", File: "/x/train.py", Line: 25, Python: true, Address: uint64(process)}
	g.Rate.Value, g.Rate.Low, g.Rate.High = rate, rate, rate
	return g
}

// Verdicts on a line are joined where several processes of a job have alike ones. Sums stay.
func TestVerdicts(t *testing.T) {
	const mib = 1 << 20
	j := New(snapshot(ranked(0, 1, 2, 3)...))
	groups := []verdict.Group{
		group(2, 0, verdict.Leaking, 9*mib, 40), group(0, 0, verdict.Leaking, 3*mib, 10), group(1, 0, verdict.Growing, 3*mib, 20), group(1, 1, verdict.Growing, mib, 5), group(3, 0, verdict.Steady, 0, 7),
	}
	list := j.Verdicts(groups)
	if len(list) != 2 || !slices.Equal(list[0].Processes, []int{0, 1, 2}) || !slices.Equal(list[0].Groups, []int{0, 1, 2, 3}) || list[0].LiveBytes != 75 || list[0].Process != 2 || len(list[0].Sites) != 4 {
		t.Fatalf("%+v", list)
	}
	if groups[0].LiveBytes != 40 || len(groups[0].Sites) != 1 {
		t.Errorf("the groups changed: %+v", groups[0])
	}
	if list[1].Several() || list[1].LiveBytes != 7 {
		t.Errorf("%+v", list[1])
	}
	none := func(int) *steps.Steps { return nil }
	if got, want := j.Growth(&list[0], groups, none), "grows 180 MiB to 540 MiB/min in 3 of 4 processes (not in rank 3), 960 MiB/min together, most in rank 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one := j.Verdicts([]verdict.Group{group(1, 0, verdict.Leaking, mib, 1), group(1, 1, verdict.Leaking, mib, 1)})
	if len(one) != 2 || one[0].Several() || one[1].Device != 1 {
		t.Errorf("two devices of one process: %+v", one)
	}
}

func TestMost(t *testing.T) {
	for _, c := range []struct {
		list []uint64
		want int
	}{{nil, -1}, {[]uint64{5}, -1}, {[]uint64{4, 4, 9, 4}, 2}, {[]uint64{4, 5}, -1}, {[]uint64{4, 6}, 1}, {[]uint64{9, 4, 9}, -1}, {[]uint64{0, 3, 0}, 1}} {
		if got := Most(c.list); got != c.want {
			t.Errorf("%v: %d, want %d", c.list, got, c.want)
		}
	}
}
