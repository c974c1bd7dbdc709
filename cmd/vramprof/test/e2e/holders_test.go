// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// TestHoldersNameWhatAnUntracedTrainingKeeps: the list that grows, the model, its gradients and
// the optimizer's state of a real PyTorch that trains without a pause and was never attached to.
func TestHoldersNameWhatAnUntracedTrainingKeeps(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("../../../../testdata/holders/hot.py")
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, root.Command(root.Env(t, 1, 8<<30), script, filepath.Join(t.TempDir(), "log")))
	if line := p.line(); !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the job printed %q", line)
	}
	out, err := exec.Command(binary(t), "holders", "-p", fmt.Sprint(p.pid()), "-d", "1", "--json").Output()
	if err != nil {
		t.Fatalf("holders: %v", err)
	}
	var r reportjson.HoldersReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	held := map[string]uint64{}
	var sum uint64
	for _, h := range r.Holders {
		held[h.Class] += h.Bytes
		sum += h.Bytes
	}
	if sum != r.Bytes || r.Held > r.Bytes || r.PID != uint32(p.pid()) || !strings.HasPrefix(r.Python, "3.") {
		t.Errorf("the lines have %d bytes, the report %d, of which %d are held; process %d, Python %s", sum, r.Bytes, r.Held, r.PID, r.Python)
	}
	grown := map[string]int64{}
	for _, g := range r.Grown {
		grown[g.Class] += g.Bytes
		if strings.Contains(g.Holder, ".grad") || g.Holder == "no holder found" || g.Holder == "in use by the running step" {
			t.Errorf("the memory of a step grew: %+v", g)
		}
	}
	if held["Trainer.history[*]"] < 80_000 || grown["Trainer.history[*]"] < 80_000 {
		t.Errorf("Trainer.history[*] has %d bytes and grew by %d: %s", held["Trainer.history[*]"], grown["Trainer.history[*]"], out)
	}
	for _, part := range []string{`"trainer".model.layers.*.*.weight of main() (hot.py:`, `"trainer".model.layers.*.*.weight.grad of`, `"trainer".optimizer.state[*]['exp_avg'] of`} {
		if !strings.Contains(strings.ReplaceAll(string(out), `\"`, `"`), part) {
			t.Errorf("no holder has %q: %s", part, out)
		}
	}
}

// TestHoldersOfAProcessThatEndsShowTheFirstWalk: it ends while the command waits for the second.
func TestHoldersOfAProcessThatEndsShowTheFirstWalk(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("../../../../testdata/holders/hot.py")
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, root.Command(root.Env(t, 1, 8<<30), script, filepath.Join(t.TempDir(), "log")))
	p.line()
	cmd := exec.Command(binary(t), "holders", "-p", fmt.Sprint(p.pid()), "-d", "40") // 8 s until the second walk begins
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	idle := 0
	eventually(t, 3*time.Minute, "the first walk has ended", func() bool {
		if idle++; hasWork(cmd.Process.Pid) {
			idle = 0
		}
		return idle == 40 // for 0.4 s: it waits for the second walk
	})
	_ = p.Process.Kill()
	_ = p.Wait()
	err = cmd.Wait()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "Who keeps it") || !strings.Contains(out.String(), "trainer") {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), &out)
	}
}

// TestHoldersOfWhatCannotBeRead: each failure has its reason and the exit code of docs/usage.md.
func TestHoldersOfWhatCannotBeRead(t *testing.T) {
	folder, _ := ordinaryUser(t, setup(t))
	sleeper := exec.Command("sleep", "60")
	python := exec.Command("/usr/bin/python3", "-c", "import time; time.sleep(60)")
	for _, p := range []*exec.Cmd{sleeper, python} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	}
	program := filepath.Join(folder, "vramprof")
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	for _, x := range []struct {
		args []string
		as   *syscall.SysProcAttr
		code int
		want string
	}{
		{[]string{}, nil, 2, "needs a process"},
		{[]string{"-p", "999999999"}, nil, 1, "does not exist"},
		{[]string{"-p", fmt.Sprint(sleeper.Process.Pid)}, nil, 5, "no Python"},
		{[]string{"-p", fmt.Sprint(python.Process.Pid)}, nil, 5, "no PyTorch tensor"},
		{[]string{"-p", fmt.Sprint(python.Process.Pid)}, nobody, 4, "as the process's user, or as root"},
		{[]string{"-p", "1", "--device", "gpu0"}, nil, 2, "unknown device"},
		{[]string{"-p", "1", "--holders-memory", "1"}, nil, 2, "--holders-memory"},
	} {
		cmd := exec.Command(program, append([]string{"holders"}, x.args...)...)
		cmd.SysProcAttr = x.as
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != x.code || !strings.Contains(string(out), x.want) {
			t.Errorf("holders %q: exit code %d, want %d: %s", x.args, code, x.code, out)
		}
	}
}
