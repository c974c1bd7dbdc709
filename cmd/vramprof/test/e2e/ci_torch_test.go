// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// gated is the program of the repository, in which the tensors of one line are the peak. Each
// second run has a MiB more.
const gated = `import os
import torch


def forward(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def main(layers):
    with open(os.environ["COUNT"], "a+") as f:
        f.seek(0)
        odd = len(f.read()) % 2
        f.write("x")
    noise = torch.empty(odd << 20, dtype=torch.uint8, device="cuda")
    kept = [forward(8) for _ in range(layers)]
    assert len(kept) == layers and noise is not None


main(4)
`

// The gate of docs/ci.md with the real PyTorch and a real git bisect run: lines that move are the
// same, growth within the spread of repeated runs is none, a commit that fails is skipped, and the
// commit that grows is found.
func TestAGateFindsTheCommitThatGrows(t *testing.T) {
	setup(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	root := realtorch.Prepare(t)
	folder, count := t.TempDir(), filepath.Join(t.TempDir(), "count")
	env := append(root.Env(t, 1, 8<<30), "COUNT="+count, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	run := func(name string, args ...string) (code int, out string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = folder, env
		text, err := cmd.CombinedOutput()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	git := func(args ...string) string {
		t.Helper()
		code, out := run("git", args...)
		if code != 0 {
			t.Fatalf("git %v: exit code %d\n%s", args, code, out)
		}
		return strings.TrimSpace(out)
	}
	git("init", "-q")
	moved := "\"\"\"A program.\"\"\"\nimport sys\n" + gated
	grown := strings.Replace(moved, "main(4)", "main(5)", 1)
	var commits []string
	for _, text := range []string{gated, "raise SystemExit(3)\n", moved, grown, grown + "# more\n"} {
		if err := os.WriteFile(filepath.Join(folder, "train.py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git("add", "train.py")
		git("commit", "-q", "-m", "change")
		commits = append(commits, git("rev-parse", "HEAD"))
	}

	baseline, script := filepath.Join(t.TempDir(), "main.json"), root.Command(env, filepath.Join(folder, "train.py")).Args
	ci := func(flags ...string) []string {
		return append(append([]string{"ci"}, flags...), append([]string{"--"}, script...)...)
	}
	git("checkout", "-q", commits[0])
	if code, out := run(binary(t), ci("--repeat", "2", "--save-baseline", baseline)...); code != 0 {
		t.Fatalf("the baseline: exit code %d\n%s", code, out)
	}
	var saved struct {
		Measurement struct {
			Peak  uint64 `json:"peak_bytes"`
			Noise uint64 `json:"noise_bytes"`
		}
	}
	if text, err := os.ReadFile(baseline); err != nil || json.Unmarshal(text, &saved) != nil || saved.Measurement.Peak != 42<<20 || saved.Measurement.Noise != 2<<20 {
		t.Errorf("measured %+v, want segments of 42 MiB, of which each second run has 2 MiB less (%v)", saved.Measurement, err)
	}
	git("checkout", "-q", commits[1])
	if code, out := run(binary(t), ci("--baseline", baseline)...); code != 125 {
		t.Errorf("a commit that fails: exit code %d\n%s", code, out)
	}

	results := t.TempDir()
	const gate = `c=$(git rev-parse HEAD); exec "$0" ci --baseline "$1" --tolerance 0 --junit "$2/$c.xml" --sarif "$2/$c.sarif" -- "${@:3}"`
	git("bisect", "start", commits[4], commits[0])
	code, out := run("git", append([]string{"bisect", "run", "bash", "-c", gate, binary(t), baseline, results}, script...)...)
	if first := git("rev-parse", "refs/bisect/bad"); code != 0 || first != commits[3] || !strings.Contains(out, commits[3]+" is the first bad commit") {
		t.Errorf("git bisect: exit code %d, found %s, want %s of %v\n%s", code, first, commits[3], commits, out)
	}
	if !strings.Contains(out, "train.py:8") || !strings.Contains(out, "32.0 MiB") || !strings.Contains(out, "40.0 MiB") {
		t.Errorf("a commit that grows: want the line of forward, with 32 and 40 MiB\n%s", out)
	}
	for suffix, want := range map[string]string{".xml": `name="train.py forward: return torch.empty(mib &lt;&lt; 20, dtype=torch.uint8, device=&#34;cuda&#34;)" file="train.py" line="8"`, ".sarif": `"uri": "train.py"`} {
		if text, err := os.ReadFile(filepath.Join(results, commits[3]+suffix)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v\n%s", suffix, want, err, text)
		}
	}
}
