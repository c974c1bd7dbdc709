// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/clock"
)

// stepsTruth is what a training of testdata/realtorch/steps.py measures itself.
type stepsTruth struct {
	PID    uint32
	Steps  uint64
	Phases []phaseTruth
}

type phaseTruth struct {
	step       uint64
	phase      string
	most       uint64
	begin, end uint64
}

func (p *phaseTruth) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[...]any{&p.step, &p.phase, &p.most, &p.begin, &p.end})
}

// peak returns where the job measured the most.
func (s *stepsTruth) peak() (most phaseTruth) {
	for _, p := range s.Phases {
		if p.most > most.most {
			most = p
		}
	}
	return most
}

// TestStepsAndPhasesAreTheJobs: two trainings print their steps and phases, one with an optimizer
// that allocates, the other with four backward passes in each step and an evaluation that needs
// most. The number of steps, the step and phase of the peak, and the peak itself agree exactly; the
// most that each step had is at most 2 MiB off.
func TestStepsAndPhasesAreTheJobs(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 8<<30)
	file := filepath.Join(t.TempDir(), "steps.vram")
	cmd := exec.Command(binary(t), append([]string{"record", "--holders=off", "--no-oom", "-o", file, "--"}, root.Command(env, "steps.py").Args...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("recorded in %v, %v of processor time", time.Since(begin).Round(time.Millisecond), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	seen, all := 0, stepsOf(t, file)
	for line := range strings.Lines(string(out)) {
		var truth stepsTruth
		if json.Unmarshal([]byte(line), &truth) != nil || truth.PID == 0 {
			continue
		}
		seen++
		got := all[truth.PID]
		by, sure, passes := "optimizer.step", "certain", 1
		if truth.Steps == 12 {
			by, sure, passes = "zero_grad", "likely", 4
		}
		if got.Count != truth.Steps || got.Open || got.Partial || got.By != by || got.Sure != sure || got.Passes != passes {
			t.Errorf("%s; the job has %d", got.Text, truth.Steps)
		}
		most := truth.peak()
		if p := got.Peak; p == nil || p.Step != most.step || p.Phase != most.phase || p.Between != (most.phase == "evaluation") || p.Bytes != most.most {
			t.Errorf("peak %+v; the job has %+v", p, most)
		}
		highest := map[uint64]uint64{}
		for _, p := range truth.Phases {
			if p.phase != "evaluation" {
				highest[p.step] = max(highest[p.step], p.most)
			}
		}
		for _, x := range got.List {
			if d := int64(x.High - highest[x.Step]); x.Count != 1 || max(d, -d) > 2<<20 { // what sampled tensors may be off between two events
				t.Errorf("step %d had %d bytes at most; the job says %d", x.Step, x.High, highest[x.Step])
			}
		}
		summary := strings.Join(strings.Fields(string(out)), " ")
		live := fmt.Sprintf("Steps: %d steps of %s", got.Count, format.Span(got.StepNS))
		if !strings.Contains(summary, live) || !strings.Contains(summary, fmt.Sprintf("peak of tensors %s %s", format.Bytes(most.most), got.Peak.Text)) {
			t.Errorf("the summary of the session does not have %q, or another peak:\n%s", live, out)
		}
		t.Log(got.Text)
	}
	if seen != 2 {
		t.Errorf("%d jobs, want 2:\n%s", seen, out)
	}
}

// stepsOf returns the steps of all processes by pid.
func stepsOf(t *testing.T, file string) map[uint32]reportjson.StepsReport {
	t.Helper()
	out, err := exec.Command(binary(t), "explain", "--json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r reportjson.ExplainReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	by := map[uint32]reportjson.StepsReport{}
	for _, x := range r.Steps {
		by[x.PID] = x
	}
	return by
}

// growing is a training of testdata/realtorch/steps.py that runs until it is asked for its truth.
type growing struct {
	*exec.Cmd
	out *bufio.Reader
}

func startGrowing(t *testing.T, root realtorch.Root, env []string, width int) *growing {
	t.Helper()
	job := &growing{Cmd: root.Command(env, "steps.py", "grow", fmt.Sprint(width))}
	job.Stderr = os.Stderr
	out, err := job.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { job.Process.Kill(); job.Wait() })
	job.out = bufio.NewReader(out)
	if text, err := job.out.ReadString('\n'); text != "running\n" {
		t.Fatal(text, err)
	}
	return job
}

// truth ends the training, and returns its steps from the first to the last that was found: on a
// busy machine, a session ends some steps behind the latest event.
func (g *growing) truth(t *testing.T, begin uint64, found *reportjson.StepsReport) []phaseTruth {
	t.Helper()
	from, to := begin+found.List[0].FromNS, begin+found.List[len(found.List)-1].ToNS
	g.Process.Signal(syscall.SIGTERM)
	last, err := g.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var truth stepsTruth
	if err := json.Unmarshal(last, &truth); err != nil {
		t.Fatal(err)
	}
	steps := wholeSteps(&truth, from, to)
	if len(steps) < 12 {
		t.Skipf("only %d steps in %v: the machine is too busy", len(steps), time.Duration(to-from))
	}
	return steps
}

// TestStepsOfRunningTrainingsAreTheJobs: leaks attaches to trainings that accumulate gradients,
// evaluate between steps and keep 3 MiB in each, and which print their steps. Their number and
// pace, the step of the peak, and the growth a step are the jobs'. Of a model so small that the
// optimizer is not in all samples, the growth is a range that has the job's, up to one step in 50,
// and a pace is named only where it is the job's.
func TestStepsOfRunningTrainingsAreTheJobs(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 8<<30)
	large, small := startGrowing(t, root, env, 256), startGrowing(t, root, env, 128)
	cmd := exec.Command(binary(t), "leaks", "--json", "--holders=off", "-d", "9s", "-p", fmt.Sprint(large.Process.Pid), "-p", fmt.Sprint(small.Process.Pid))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	wall := uint64(time.Now().UnixNano()) - clock.Now()
	var r reportjson.LeaksReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	begin := uint64(r.Time.UnixNano()) - wall - r.DurationNS // by the jobs' clock
	by := map[uint32]*reportjson.StepsReport{}
	for i := range r.Steps {
		by[r.Steps[i].PID] = &r.Steps[i]
	}
	got, sampled := by[uint32(large.Process.Pid)], by[uint32(small.Process.Pid)]
	if len(r.Steps) != 2 || got == nil || sampled == nil {
		t.Fatalf("%+v", r.Steps)
	}
	const kept = 3 << 20
	steps := small.truth(t, begin, sampled)
	t.Logf("%s; grows %d to %d; the job had %d steps", sampled.Text, sampled.GrowthLow, sampled.GrowthBytes, len(steps))
	// A sample has 95 % of the tensors of 3 MiB: where it has all, they count as 5 % more.
	if sampled.GrowthLow > kept+kept/15 || sampled.GrowthBytes < kept-kept/50 || !isPaceOf(sampled, steps, true) || sampled.Count > uint64(len(steps))+1 {
		t.Errorf("%s, and grows by %d to %d bytes a step; the job has %d steps of 3 MiB", sampled.Text, sampled.GrowthLow, sampled.GrowthBytes, len(steps))
	}
	steps = large.truth(t, begin, got)
	t.Logf("%s; grows %d to %d; the job had %d steps", got.Text, got.GrowthLow, got.GrowthBytes, len(steps))
	// Beyond 4,000 samples a second, the sample lacks the optimizer of some steps.
	if got.By != "optimizer.step" || got.Sure != "certain" && got.Unsampled == 0 || got.Passes != 2 || math.Abs(float64(got.Count)-float64(len(steps))) > 1 {
		t.Errorf("%s; the job has %d", got.Text, len(steps))
	}
	if got.Sure == "certain" && got.GrowthBytes != got.GrowthLow || math.Abs(float64(got.GrowthBytes)-kept) > kept/20 || math.Abs(float64(got.GrowthLow)-kept) > kept/20 {
		t.Errorf("tensors grow by %d to %d bytes a step, want 3 MiB", got.GrowthLow, got.GrowthBytes)
	}
	if !isPaceOf(got, steps, false) {
		t.Errorf("%.2f steps a second, the job has %d in %v", got.Pace, len(steps), time.Duration(steps[len(steps)-1].end-steps[0].begin))
	}
	checkPeak(t, got, begin, steps)
	checkGrowing(t, &r, got.PID, kept)
}

// isPaceOf reports whether the pace is that of the last three quarters of the job's steps, up to a
// quarter: the machine is busy. It may be unknown, where that is allowed.
func isPaceOf(got *reportjson.StepsReport, steps []phaseTruth, unknown bool) bool {
	steps = steps[len(steps)/4:]
	pace := float64(len(steps)-1) * 1e9 / float64(steps[len(steps)-1].begin-steps[0].begin)
	return unknown && got.Pace == 0 || math.Abs(got.Pace-pace) <= pace/4
}

// checkPeak compares the step of the peak with that of the job, whose last step may still have been
// under way when the session ended.
func checkPeak(t *testing.T, got *reportjson.StepsReport, begin uint64, steps []phaseTruth) {
	t.Helper()
	most, ended := steps[0], begin+got.List[len(got.List)-1].ToNS
	for _, s := range steps {
		if s.most > most.most && s.begin+(s.end-s.begin)/2 < ended {
			most = s
		}
	}
	for _, x := range got.List {
		if p := got.Peak; p != nil && x.Step == p.Step && p.Phase == most.phase && begin+x.FromNS <= most.end && begin+x.ToNS >= most.begin {
			if d := int64(p.Bytes) - int64(most.most); max(d, -d) <= 2<<20 { // as in TestStepsAndPhasesAreTheJobs
				return
			}
		}
	}
	t.Errorf("peak %+v; the job has %+v", got.Peak, most)
}

// checkGrowing checks the growth a step of each line of a process that grows.
func checkGrowing(t *testing.T, r *reportjson.LeaksReport, pid uint32, kept float64) {
	t.Helper()
	for _, v := range r.Verdicts {
		if v.PID != pid || v.Class != "leaking" && v.Class != "growing" {
			continue
		}
		t.Logf("%s at %s:%d: %d bytes a step: %s", v.Class, v.Line.File, v.Line.Line, v.PerStep, v.Evidence)
		if v.Class == "growing" && v.PerStep == 0 { // its rate may be zero, on a machine that slows down
			continue
		}
		if math.Abs(float64(v.PerStep)-kept) > kept/4 {
			t.Errorf("%s at %s:%d: %d bytes a step, want %.0f", v.Class, v.Line.File, v.Line.Line, v.PerStep, kept)
		}
	}
}

// wholeSteps returns each step that begins and ends between two times, with its most and where that
// was.
func wholeSteps(truth *stepsTruth, from, to uint64) (list []phaseTruth) {
	by := map[uint64]*phaseTruth{}
	for _, p := range truth.Phases {
		if p.phase == "evaluation" || p.phase == "keep" {
			continue
		}
		s := by[p.step]
		if s == nil {
			s = &phaseTruth{step: p.step, begin: p.begin}
			by[p.step] = s
		}
		if s.end = p.end; p.most > s.most {
			s.most, s.phase = p.most, p.phase
		}
	}
	for n := uint64(1); n <= truth.Steps; n++ {
		if s := by[n]; s != nil && s.begin >= from && s.end <= to {
			list = append(list, *s)
		}
	}
	return list
}
