// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/simdriver"
)

// What docs/ci.md promises for machines without a GPU: NVIDIA's own libraries allocate, and the
// gate compares.
func TestAGateWorksOnTheSimulatedDriver(t *testing.T) { onEachDriver(t, checkGate) }

func checkGate(t *testing.T, driver string) {
	env := simdriver.Build(t, driver).Env(t, "t4", 1)
	program, baseline := simdriver.Program(t, "scripts/gpucheck/program/driver.c"), filepath.Join(t.TempDir(), "main.json")
	run := func(bytes int, args ...string) (code int, out string) {
		t.Helper()
		script := fmt.Sprintf("(echo init; echo alloc %d 1; sleep 2) | %s", bytes, program)
		cmd := exec.Command(binary(t), append(append([]string{"ci"}, args...), "--", "sh", "-c", script)...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	if code, out := run(64<<20, "--save-baseline", baseline, "--budget", "1GiB"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	var saved struct {
		Measurement struct {
			Peak  uint64 `json:"peak_bytes"`
			Usage uint64 `json:"usage_bytes"`
		}
	}
	text, err := os.ReadFile(baseline)
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if m := saved.Measurement; err != nil || m.Peak != 64<<20 || m.Usage <= m.Peak {
		t.Errorf("measured %+v, want 64 MiB and a context (%v)", m, err)
	}
	if code, out := run(64<<20, "--baseline", baseline, "--tolerance", "0"); code != 0 {
		t.Errorf("the same: exit code %d\n%s", code, out)
	}
	if code, out := run(66<<20, "--baseline", baseline); code != 1 || !strings.Contains(out, "peak failed: +2.00 MiB") {
		t.Errorf("2 MiB more: exit code %d\n%s", code, out)
	}
}

// On NVIDIA's libcuda, ps lists what NVML lists, and the rest of the GPU as a row.
func TestPsListsWhatIsNotAttributedOnTheSimulatedDriver(t *testing.T) { onEachDriver(t, checkRest) }

func checkRest(t *testing.T, driver string) {
	env := simdriver.Build(t, driver).Env(t, "t4", 1)
	target := startTarget(t, env, simdriver.Program(t, "scripts/gpucheck/program/driver.c"))
	for _, command := range []string{"init", "alloc 67108864 1"} {
		fmt.Fprintln(target.stdin, command)
		if answer := target.line(); !strings.HasPrefix(answer, `{"result": 0`) {
			t.Fatalf("%s: %s", command, answer)
		}
	}
	cmd := exec.Command(binary(t), "ps", "--json", "--reap-hints")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		GPUs []struct {
			Used         uint64 `json:"used_bytes"`
			Listed       uint64 `json:"listed_bytes"`
			Unattributed uint64 `json:"unattributed_bytes"`
		}
	}
	held := simdriver.Held(t, env, target.pid(), 0)
	if err := json.Unmarshal(out, &r); err != nil || len(r.GPUs) != 1 || r.GPUs[0].Listed != held || r.GPUs[0].Listed+r.GPUs[0].Unattributed != r.GPUs[0].Used {
		t.Errorf("%+v, %v; the book has %d", r, err, held)
	}
	t.Logf("%+v", r.GPUs)
}
