// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// untold are scripts of testdata/remedies that cannot print the purposes of their memory.
var untold = map[string]string{
	"remedy":     "what all have in common",
	"serve":      "runs the others",
	"generation": "it has no backward pass",
	"recomputed": "to ask a graph what it saves recomputes it",
}

// TestExplainOfUnseenJobs: the jobs of testdata/remedies stop before a backward
// pass and print the purposes of their memory, by their own models, optimizers and graphs. The
// rules of explain were not written with them.
func TestExplainOfUnseenJobs(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	folder := filepath.Join(filepath.Dir(realtorch.Script("")), "remedies")
	scripts, err := filepath.Glob(filepath.Join(folder, "*.py"))
	if err != nil || len(scripts) < 30 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".py")
		if reason, ok := untold[name]; ok {
			t.Logf("not %s: %s", name, reason)
			continue
		}
		t.Run(name, func(t *testing.T) {
			if os.Getenv("VRAMPROF_LONG") == "" && name != "tuples" {
				t.Skip("VRAMPROF_LONG=1 runs it: tuples is a training with all purposes")
			}
			env := root.Env(t, 1, 8<<30)
			j := root.Start(t, env, "../remedies/"+name+".py", "--point", "2")
			pid := j.Next("begin").PID
			file := filepath.Join(t.TempDir(), "early.vram")
			s := start(t, env, "record", "--holders=end", "-p", fmt.Sprint(pid), "-o", file).ready()
			j.Go()
			j.Next("read")
			live := explained(t, env, "-p", fmt.Sprint(pid))
			s.stop()
			captured := explained(t, env, file)
			j.Go()
			truth := j.Next("truth")
			if name == "penalty" { // its graph saves what a backward pass made, which is no activation by its stack
				captured.Agreed = nil
			}
			checkPurposes(t, env, "live", truth, live)
			checkPurposes(t, env, "attached at the start", truth, captured)
			t.Logf("job: %v of %d\nlive: %v\ncaptured: %v", truth.Purposes, truth.Devices[0].Allocated, purposesOf(live), purposesOf(captured))
		})
	}
}
