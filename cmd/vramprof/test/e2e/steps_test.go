// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// stepsTruth is what a training of testdata/realtorch/steps.py says of itself.
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

func TestStepsAndTheirPhasesAreTheJobs(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 8<<30)
	dir := os.Getenv("STEPS_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	file := filepath.Join(dir, "steps.vram")
	cmd := exec.Command(binary(t), append([]string{"record", "--holders=off", "--no-oom", "--force", "-o", file, "--"}, root.Command(env, "steps.py").Args...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "truth"), out, 0o600)
	for line := range strings.Lines(string(out)) {
		var truth stepsTruth
		if json.Unmarshal([]byte(line), &truth) == nil {
			t.Log(truth.PID, truth.Steps)
		}
	}
}
