// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
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
