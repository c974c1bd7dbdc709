// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// Applied is a change of the program, with what it rests on.
type Applied struct {
	Remedy   remedy.Remedy
	Evidence remedy.Evidence
}

// program returns the job with what its stack traces prove.
func (j *Job) program() (*remedy.Program, error) {
	if j.Late {
		return nil, errors.New("what was recorded does not begin with the program")
	}
	if j.Stacks == nil {
		return nil, errors.New("the file has no stack traces")
	}
	p := remedy.New(j.Trace, j.Stacks)
	if j.Beside != nil {
		other, err := j.Beside.program()
		if err != nil {
			return nil, fmt.Errorf("the other file: %w", err)
		}
		p.Beside(other)
	}
	return p, nil
}

// allTogether names the scenario with all changes that were asked for.
const allTogether = "all together"

// changes returns scenarios of changed programs: each change alone, and all together if there are
// more. One asked setting belongs to all. Changes that cannot be predicted come with the reason.
func (j *Job) changes(list []remedy.Remedy, settings []Scenario) (scenarios []Scenario, refused []reportjson.ConditionReport) {
	p, err := j.program()
	if err != nil {
		return nil, []reportjson.ConditionReport{{Code: "not_changed", Text: "the program cannot be changed: " + err.Error()}}
	}
	own := j.Trace.Settings
	all, applied := remedy.As(p), []Applied(nil)
	for _, r := range list {
		if one, seen, err := remedy.As(p).Apply(r); err == nil {
			scenarios = append(scenarios, changedTo(untrusted.Clean(r.String()), own, one, Applied{r, seen}))
		} else {
			refused = append(refused, reportjson.ConditionReport{Code: "not_predicted", Text: untrusted.Clean(r.String() + ": " + err.Error())})
			continue
		}
		next, seen, err := all.Apply(r)
		if err != nil { // nothing is left for it
			continue
		}
		all, applied = next, append(applied, Applied{r, seen})
	}
	if len(settings) == 2 {
		own = settings[1].Settings
	}
	if len(applied) > 1 || len(applied) == 1 && len(settings) == 2 {
		scenarios = append(scenarios, changedTo(allTogether, own, all, applied...))
	}
	return scenarios, refused
}

func changedTo(name string, s allocsim.Settings, c remedy.Changed, applied ...Applied) Scenario {
	x := Scenario{Name: name, Settings: s, Remedies: applied, Change: func(*allocsim.Trace) (*allocsim.Trace, error) { return c.Low.Trace, nil }}
	if c.High != c.Low {
		x.High = c.High.Trace
	}
	return x
}

var kinds = map[remedy.Kind]string{
	remedy.NoLine: "without_line", remedy.Recompute: "checkpoint", remedy.NoGradient: "set_to_none", remedy.EightBits: "optimizer_8bit", remedy.Sharded: "shard_optimizer",
	remedy.HalfFloat: "half", remedy.Batches: "batch", remedy.ToHost: "offload",
}

func remedyReports(list []Applied) (all []reportjson.RemedyReport) {
	for i := range list {
		a := &list[i]
		all = append(all, reportjson.RemedyReport{
			Kind: kinds[a.Remedy.Kind], Option: untrusted.Clean(a.Remedy.String()), Advice: untrusted.Clean(a.say()), Count: a.Evidence.Count, Bytes: a.Evidence.Bytes, After: a.Evidence.After,
			Ratio: a.Evidence.Ratio,
		})
	}
	return all
}

// estimate ends the advice of changes that the rules do not always predict: docs/accuracy.md,
// "Unseen jobs".
const estimate = "an estimate: for programs that were new to vramprof, 51 of 64 were within 5%%, and the farthest was 60%% too high"

// say names what to change and why, without an end.
func (a *Applied) say() string {
	r, e := &a.Remedy, &a.Evidence
	count := func(noun string) string { return format.Count(uint64(e.Count), noun) }
	switch r.Kind {
	case remedy.NoLine:
		return fmt.Sprintf("%s keeps %s in %s: drop its result when the statement ends, or move it to the host", r.Line, format.Bytes(e.Bytes), count("execution"))
	case remedy.Recompute:
		return fmt.Sprintf("%s saves %s on average for the backward pass in each of %s: call it through torch.utils.checkpoint.checkpoint(…, use_reentrant=False), which runs it twice; "+estimate,
			r.Function, format.Bytes(e.Bytes/uint64(max(e.Count, 1))), count("call"))
	case remedy.NoGradient:
		return fmt.Sprintf("gradients of %s stay until the next backward pass: call optimizer.zero_grad(set_to_none=True) right after optimizer.step()", format.Bytes(e.Bytes))
	case remedy.EightBits:
		return fmt.Sprintf("the optimizer's state is %s in %s: %s in 8 bits, as with bitsandbytes, if its elements have 4 bytes now", format.Bytes(e.Bytes), count("tensor"), format.Bytes(e.After))
	case remedy.Sharded:
		return fmt.Sprintf("the optimizer's state is %s: at most %s on each of %d ranks, as with ZeroRedundancyOptimizer", format.Bytes(e.Bytes), format.Bytes(e.After), r.Ranks)
	case remedy.HalfFloat:
		return "weights, activations, gradients and state in 2 bytes, as with model.bfloat16(), if they have 4 now: check that it still learns"
	case remedy.ToHost:
		return fmt.Sprintf("%s saves %s on average for each of %s: call it under torch.autograd.graph.save_on_cpu(pin_memory=True), which copies that to the host and back; "+estimate,
			r.Code, format.Bytes(e.Bytes/uint64(max(e.Count, 1))), format.Count(uint64(e.Count), "backward pass"))
	case remedy.Batches:
		return fmt.Sprintf("batches %s times as large, by the sizes of %d passes whose batches differ by a factor of %.2f", strconv.FormatFloat(r.Factor, 'g', -1, 64), e.Count, e.Ratio)
	}
	return ""
}

// advice writes what each change rests on, and which cannot be predicted.
func (p *page) advice(x *reportjson.ReplayedReport) {
	for i := range x.Scenarios {
		if s := &x.Scenarios[i]; len(s.Remedies) == 1 && s.Name != allTogether {
			p.item("  - ", s.Remedies[0].Advice+".")
		}
	}
	for _, c := range x.NotTried {
		p.item("  - ", "Not predicted: "+c.Text+".")
	}
}
