// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// Report replays the scenarios of each job. GPU is the memory of the asked GPU, in bytes; 0: none.
func Report(file string, jobs []*Job, scenarios func(*Job) ([]Scenario, []reportjson.ConditionReport, error), gpu uint64) (*reportjson.WhatIfReport, error) {
	r := &reportjson.WhatIfReport{File: untrusted.Clean(file), GPU: gpu, Jobs: []reportjson.ReplayedReport{}, Version: reportjson.WhatIfVersion}
	for _, j := range jobs {
		x := j.about()
		if len(j.Refused) == 0 {
			list, refused, err := scenarios(j)
			if err != nil {
				return nil, err
			}
			x.NotTried = refused
			if gpu > 0 {
				x.Capacity = j.remains(gpu)
			}
			for _, s := range list {
				out, err := Replay(j.Trace, s, j.capacity(gpu), gpu)
				if err != nil {
					return nil, err
				}
				x.Scenarios = append(x.Scenarios, j.scenario(&out))
			}
		}
		r.Jobs = append(r.Jobs, x)
	}
	return r, nil
}

// remains is what a GPU has for PyTorch: what the process had besides comes off.
func (j *Job) remains(gpu uint64) *uint64 {
	if j.OtherKnown {
		gpu -= min(j.Other, gpu)
	}
	return &gpu
}

// capacity is what remains, for a replay: at least 1, as 0 stands for no limit; 0 without a GPU.
func (j *Job) capacity(gpu uint64) uint64 {
	if gpu == 0 {
		return 0
	}
	return max(*j.remains(gpu), 1)
}

func (j *Job) about() reportjson.ReplayedReport {
	x := reportjson.ReplayedReport{
		PID: j.PID, Command: untrusted.Clean(j.Comm), Device: j.Device, Torch: untrusted.Clean(j.Trace.Version), Settings: untrusted.Clean(j.Trace.Settings.String()),
		Late: j.Late, Equal: j.Proof.Reserved, Steps: j.Steps, Refused: []reportjson.ConditionReport{}, Scenarios: []reportjson.ScenarioReport{},
	}
	for _, op := range j.Trace.Ops {
		if op.Kind == allocsim.Malloc {
			x.Allocations++
		}
	}
	if j.OtherKnown {
		x.Other = &j.Other
	}
	for i := range j.Refused {
		c := &j.Refused[i]
		x.Refused = append(x.Refused, reportjson.ConditionReport{Code: codes[c.Code].name, Text: c.say(), Remedy: c.remedy(j.Snapshot)})
	}
	return x
}

var verdicts = map[Verdict]string{Fits: "fits", Depends: "depends", OutOfMemory: "out_of_memory"}

func (j *Job) scenario(out *Outcome) reportjson.ScenarioReport {
	x := reportjson.ScenarioReport{
		Name: out.Scenario.Name, Reserved: reportjson.RangeReport(out.Reserved), RunsIn: reportjson.RangeReport(out.RunsIn), Grain: out.Grain,
		Allocated: out.Allocated.High, Stuck: out.Stuck, Orders: out.Orders, Verdict: verdicts[out.Verdict], Failures: out.Failures, Retries: out.Retries,
	}
	if out.Allocated.Low != out.Allocated.High {
		x.AllocatedLow = out.Allocated.Low
	}
	x.Remedies = remedyReports(out.Scenario.Remedies)
	if out.FailedAt < 0 || out.FailedAt >= len(out.Trace.Ops) {
		return x
	}
	for _, op := range out.Trace.Ops[:out.FailedAt] {
		switch op.Kind {
		case allocsim.Malloc:
			x.FailedAfter++
		case allocsim.Step:
			x.FailedStep++
		}
	}
	x.FailedStep++
	if j.Steps == 0 {
		x.FailedStep = 0
	}
	if op := out.Trace.Ops[out.FailedAt]; op.Kind == allocsim.Malloc {
		x.FailedLine = j.line(out.Trace.Blocks[op.Block].Site)
	}
	return x
}

// line returns the line of the user's own code that a site is in, or "".
func (j *Job) line(site uint32) string {
	if j.Stacks == nil || site == 0 {
		return ""
	}
	stack := frames.Visible(j.Stacks, uint64(site), "")
	if len(stack) == 0 {
		return ""
	}
	f := &stack[frames.Headline(stack)]
	if f.Mark { // no stack was recorded
		return ""
	}
	const columns = 60
	return untrusted.Clean(frames.Text(f, columns))
}
