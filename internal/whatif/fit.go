// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	maxChanges = 3       // in one list
	fullSearch = 4 << 20 // operations up to which all lists of changes are tried; beyond, the best ones are added up
	worthwhile = 0.01    // of what a job runs in: a change that saves less is none
)

// change is a setting or a change of the program.
type change struct {
	name     string
	settings *allocsim.Settings // nil: a change of the program
	remedy   remedy.Remedy
	saves    uint64 // alone
}

// fitter tries changes of one job.
type fitter struct {
	job      *Job
	program  *remedy.Program // nil: only settings can be tried
	capacity uint64
	gpu      uint64
	tried    int
}

// Fit finds the shortest list of settings and changes of the program with which each job runs on a
// GPU of so many bytes, in every order of addresses.
func Fit(file string, jobs []*Job, gpu uint64) (*reportjson.FitReport, error) {
	r := &reportjson.FitReport{File: untrusted.Clean(file), GPU: gpu, Jobs: []reportjson.FittedJob{}, Version: reportjson.WhatIfVersion}
	for _, j := range jobs {
		x := reportjson.FittedJob{ReplayedReport: j.about(), Steps: []reportjson.FitStep{}}
		if len(j.Refused) == 0 {
			f := fitter{job: j, capacity: j.capacity(gpu), gpu: gpu}
			x.Capacity = j.remains(gpu)
			if err := f.fit(&x); err != nil {
				return nil, err
			}
		}
		r.Jobs = append(r.Jobs, x)
	}
	return r, nil
}

func (f *fitter) fit(x *reportjson.FittedJob) error {
	own, err := Replay(f.job.Trace, Scenario{Name: asItRan, Settings: f.job.Trace.Settings}, f.capacity, f.gpu)
	if err != nil {
		return err
	}
	x.Scenarios = append(x.Scenarios, f.job.scenario(&own))
	if judge(x, &own); x.Fits {
		return nil
	}
	if f.program, err = f.job.program(); err != nil {
		x.NotTried = append(x.NotTried, reportjson.ConditionReport{Code: "not_changed", Text: "the program cannot be changed: " + untrusted.Clean(err.Error())})
	}
	list, err := f.candidates(&own)
	if err != nil {
		return err
	}
	best, err := f.shortest(list)
	if err != nil {
		return err
	}
	x.Tried = f.tried
	return f.steps(x, best, &own)
}

func judge(x *reportjson.FittedJob, out *Outcome) {
	x.Fits, x.Verdict, x.Orders, x.Failures = out.Verdict == Fits, verdicts[out.Verdict], out.Orders, out.Failures
}

// candidates returns what alone saves something, best first.
func (f *fitter) candidates(own *Outcome) (list []change, err error) {
	settings, err := usual.settings(f.job)
	if err != nil {
		return nil, err
	}
	for i := range settings[1:] {
		s := &settings[i+1]
		list = append(list, change{name: s.Name, settings: &s.Settings})
	}
	if f.program != nil {
		for _, r := range f.program.Candidates(f.peak(own), func(fr *callstack.Frame) bool { return frames.ClassOf(fr) == frames.UserPython }) {
			list = append(list, change{name: untrusted.Clean(r.String()), remedy: r})
		}
	}
	kept := list[:0]
	for _, c := range list {
		out, ok, err := f.play([]change{c}, 0)
		if err != nil {
			return nil, err
		}
		if ok && float64(out.RunsIn.High) < float64(own.RunsIn.High)*(1-worthwhile) {
			c.saves = own.RunsIn.High - out.RunsIn.High
			kept = append(kept, c)
		}
	}
	slices.SortStableFunc(kept, func(a, b change) int { return cmp.Compare(b.saves, a.saves) })
	return kept, nil
}

// peak returns the operation after which the blocks of the job take most.
func (f *fitter) peak(own *Outcome) int {
	r, err := allocsim.Run(own.Trace, f.job.Trace.Settings, allocsim.Options{Total: f.gpu})
	if err != nil {
		return 0
	}
	return r.PeakAllocOp
}

// apply returns the job with changes, or false if one of them leaves nothing to do for another.
func (f *fitter) apply(list []change) (Scenario, bool) {
	s := Scenario{Name: "changed", Settings: f.job.Trace.Settings}
	changed, any := remedy.Changed{}, false
	for _, c := range list {
		if c.settings != nil {
			if s.Settings != f.job.Trace.Settings { // each is all of PYTORCH_CUDA_ALLOC_CONF
				return s, false
			}
			s.Settings = *c.settings
			continue
		}
		if !any {
			changed, any = remedy.As(f.program), true
		}
		next, seen, err := changed.Apply(c.remedy)
		if err != nil {
			return s, false
		}
		changed = next
		s.Remedies = append(s.Remedies, Applied{c.remedy, seen})
	}
	if !any {
		return s, true
	}
	return changedTo(s.Name, s.Settings, changed, s.Remedies...), true
}

func (f *fitter) play(list []change, capacity uint64) (Outcome, bool, error) {
	s, ok := f.apply(list)
	if !ok {
		return Outcome{}, false, nil
	}
	f.tried++
	out, err := Replay(f.job.Trace, s, capacity, f.gpu)
	return out, err == nil, err
}

// fits reports whether changes fit in every order of addresses. It ends with the first that does
// not.
func (f *fitter) fits(list []change) (bool, error) {
	s, ok := f.apply(list)
	if !ok {
		return false, nil
	}
	f.tried++
	traces := []*allocsim.Trace{f.job.Trace}
	if s.Change != nil {
		low, err := s.Change(f.job.Trace)
		if err != nil {
			return false, err
		}
		traces = []*allocsim.Trace{low}
	}
	if s.High != nil {
		traces = append(traces, s.High)
	}
	for _, t := range traces {
		for order := allocsim.Rising; order < allocsim.Orders; order++ {
			r, err := allocsim.Run(t, s.Settings, allocsim.Options{Order: order, Capacity: f.capacity, Total: f.gpu})
			if err != nil || r.Failed >= 0 {
				return false, err
			}
			if !r.OrderMatters {
				break
			}
		}
	}
	return true, nil
}

// cost returns what a list costs other than memory: 2 where it changes what the model computes, 1
// where each step copies what it saves to the host and back.
func cost(list []change) (most int) {
	for i := range list {
		switch c := &list[i]; {
		case c.settings != nil:
		case c.remedy.Kind == remedy.HalfFloat:
			most = 2
		case c.remedy.Kind == remedy.ToHost:
			most = max(most, 1)
		}
	}
	return most
}

// shortest returns the shortest list that fits. Of lists of one length, those of the least cost
// come first, then those whose changes save most alone. Without one that fits, it returns what
// together saves most.
func (f *fitter) shortest(list []change) ([]change, error) {
	for n := 1; n <= min(maxChanges, len(list)); n++ {
		if n > 1 && len(f.job.Trace.Ops) > fullSearch {
			break
		}
		lists := combinations(list, n)
		slices.SortStableFunc(lists, func(a, b []change) int { return cmp.Compare(cost(a), cost(b)) })
		for _, some := range lists {
			if fits, err := f.fits(some); err != nil || fits {
				return some, err
			}
		}
	}
	return f.greedy(list)
}

// greedy adds the change that leaves least, as long as one saves something.
func (f *fitter) greedy(list []change) (best []change, err error) {
	least, fits := ^uint64(0), false
	for len(best) < len(list) && !fits {
		next, at := []change(nil), least
		for _, c := range list {
			if slices.ContainsFunc(best, func(b change) bool { return b.name == c.name }) {
				continue
			}
			out, ok, err := f.play(append(slices.Clone(best), c), f.capacity)
			if err != nil {
				return nil, err
			}
			if ok && float64(out.RunsIn.High) < float64(at)*(1-worthwhile) {
				next, at, fits = append(slices.Clone(best), c), out.RunsIn.High, out.Verdict == Fits
			}
		}
		if next == nil {
			break
		}
		best, least = next, at
	}
	return best, nil
}

// combinations returns all choices of n elements, those of the first ones first.
func combinations(list []change, n int) (all [][]change) {
	if n == 0 {
		return [][]change{nil}
	}
	for i := 0; i+n <= len(list); i++ {
		for _, rest := range combinations(list[i+1:], n-1) {
			all = append(all, append([]change{list[i]}, rest...))
		}
	}
	return all
}

// steps reports a list, each change on top of those before it.
func (f *fitter) steps(x *reportjson.FittedJob, list []change, own *Outcome) error {
	before := own.RunsIn
	for n := range list {
		out, ok, err := f.play(list[:n+1], f.capacity)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		step := reportjson.FitStep{Name: list[n].name, RunsIn: reportjson.RangeReport(out.RunsIn), Before: reportjson.RangeReport(before)}
		if list[n].settings == nil {
			step.Remedy = &remedyReports(out.Scenario.Remedies[len(out.Scenario.Remedies)-1:])[0]
		}
		x.Steps = append(x.Steps, step)
		judge(x, &out)
		before = out.RunsIn
	}
	return nil
}
