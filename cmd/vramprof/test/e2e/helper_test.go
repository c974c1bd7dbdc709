// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// Of the real PyTorch: a helper allocates for three callers, of which one leaks. The leak has the
// line of that caller, the rest that of the helper. What two modules keep below one line of the
// model is one row with their names.
func TestALeakOfAHelperIsTheLineOfTheCallerThatLeaks(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 8<<30)
	file := filepath.Join(t.TempDir(), "helper.vram")
	inner := root.Command(env, "helper.py")
	cmd := exec.Command(binary(t), append([]string{"record", "--holders=off", "--sample", "0", "-o", file, "--"}, inner.Args...)...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	leaks := func(more ...string) []byte {
		out, err := exec.Command(binary(t), append([]string{"leaks", file}, more...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Logf("%s", leaks())
	var r reportjson.LeaksReport
	if err := json.NewDecoder(bytes.NewReader(leaks("--json"))).Decode(&r); err != nil {
		t.Fatal(err)
	}
	at := func(f *reportjson.FrameReport) string { return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line) }
	classes := map[string]string{}
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.Kind == "tensor" && v.Device == "cuda:0" {
			classes[at(&v.Line)] = v.Class
		}
	}
	keep, helper, model := realtorch.Site(t, "helper.py", "keep"), realtorch.Site(t, "helper.py", "helper"), realtorch.Site(t, "helper.py", "model")
	if classes[keep] != "leaking" || classes[helper] == "" || classes[helper] == "leaking" {
		t.Errorf("verdicts %v, want %s leaking and %s not", classes, keep, helper)
	}
	rows := map[string][]string{}
	for i := range r.Lines {
		l := &r.Lines[i]
		if l.Kind != "tensor" || l.Device != "cuda:0" {
			continue
		}
		if _, twice := rows[at(&l.Line)]; twice {
			t.Errorf("two rows of %s", at(&l.Line))
		}
		rows[at(&l.Line)] = []string{}
		for _, c := range l.Calls {
			rows[at(&l.Line)] = append(rows[at(&l.Line)], c.Function)
		}
	}
	if got := strings.Join(rows[model], " "); !strings.Contains(got, "Linear.forward") || !strings.Contains(got, "GELU.forward") || strings.Contains(got, "_call_impl") {
		t.Errorf("%s calls %q", model, got)
	}
	tree, err := exec.Command(binary(t), "report", file, "--view", "tree").Output()
	if err != nil || strings.Contains(string(tree), "_call_impl") || !strings.Contains(string(tree), "Sequential.forward") {
		t.Errorf("tree: %v\n%s", err, tree)
	}
}
