// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// jobPart returns which part of the truth of testdata/holders/late.py a holder belongs to.
func jobPart(h *reportjson.HolderReport) string {
	path := strings.Join(h.Path, "")
	switch {
	case strings.HasSuffix(path, " (autograd graph)"):
		return "activations"
	case strings.HasPrefix(path, "trainer.model.") && strings.HasSuffix(path, ".grad"):
		return "gradients"
	case strings.HasPrefix(path, "trainer.model."):
		return "model"
	case strings.HasPrefix(path, "trainer.optimizer.state[*]['exp_avg"):
		return "optimizer"
	case path == "trainer.logits[*]":
		return "leak"
	case path == "trainer.batch":
		return "batch"
	}
	return "other: " + h.Holder
}

// TestHoldersNameEveryGigabyteFromBeforeTheAttach: nothing is traced, and the training does not
// allocate while it is read.
func TestHoldersNameEveryGigabyteFromBeforeTheAttach(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("../../../../testdata/holders/late.py")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "truth.json")
	p := startCommand(t, root.Command(root.Env(t, 1, 32<<30), script, file))
	if line := p.line(); !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the job printed %q", line)
	}
	var truth map[string]uint64
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &truth) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := exec.Command(binary(t), "holders", "-p", fmt.Sprint(p.pid()), "--json").Output()
	if err != nil {
		t.Fatalf("holders: %v", err)
	}
	var r reportjson.HoldersReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	parts := map[string]uint64{}
	for i := range r.Holders {
		parts[jobPart(&r.Holders[i])] += r.Holders[i].Bytes
	}
	for _, name := range []string{"model", "gradients", "optimizer", "batch", "leak", "activations"} {
		if got, want := float64(parts[name]), float64(truth[name]); want < 1<<20 || math.Abs(got-want) > 0.02*want+1<<20 {
			t.Errorf("%s: %.0f bytes, the job says %.0f", name, got, want)
		}
	}
	if held := float64(r.Held) / float64(truth["allocated"]); held < 0.99 || held > 1 {
		t.Errorf("holders name %.4f of the %d bytes that PyTorch has allocated", held, truth["allocated"])
	}
	t.Logf("%v, the job says %v, walk of %v", parts, truth, time.Duration(r.TookNS))

	// The job goes on between two walks: when the first has ended, which takes long on a busy
	// machine.
	first := max(1500*time.Millisecond, 2*time.Duration(r.TookNS))
	time.AfterFunc(first, p.next)
	grown, err := exec.Command(binary(t), "holders", "-p", fmt.Sprint(p.pid()), "-d", (2 * first).String(), "--json").Output()
	if err != nil || json.Unmarshal(grown, &r) != nil {
		t.Fatalf("holders: %v", err)
	}
	if !slices.ContainsFunc(append(r.Grown, r.Unclear...), func(g reportjson.GrownReport) bool {
		return g.Holder == "trainer.logits[*]" && g.Entries == 1 && g.Bytes == 64<<20
	}) {
		t.Errorf("grown are %+v, unclear %+v", r.Grown, r.Unclear)
	}
}
