// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// heldPart returns which part of the truth of testdata/holders/late.py a holder belongs to.
func heldPart(path string) string {
	switch {
	case strings.Contains(path, " (autograd graph)"):
		return "activations"
	case strings.Contains(path, "trainer.model.") && strings.HasSuffix(path, ".grad"):
		return "gradients"
	case strings.Contains(path, "trainer.model."):
		return "model"
	case strings.Contains(path, "trainer.optimizer.state[*]['exp_avg"):
		return "optimizer"
	case strings.Contains(path, "trainer.logits[*]"):
		return "leak"
	case strings.Contains(path, "trainer.batch"):
		return "batch"
	}
	return "other: " + path
}

// TestASessionThatBeginsLateNamesWhoKeepsEveryGigabyte: the job allocates one more tensor while it
// is traced, so that its allocator's total is known. It runs alone, for the walk at the end to have
// time.
func TestASessionThatBeginsLateNamesWhoKeepsEveryGigabyte(t *testing.T) {
	setupAlone(t)
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("../../../../testdata/holders/late.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := startCommand(t, root.Command(root.Env(t, 1, 32<<30), script, filepath.Join(dir, "truth.json")))
	if line := p.line(); !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the job printed %q", line)
	}
	file := filepath.Join(dir, "late.vram")
	session := start(t, nil, "record", "--holders=end", "-p", fmt.Sprint(p.pid()), "-o", file).ready()
	time.Sleep(2 * time.Second) // the walk at the attach
	p.next()
	if line := p.line(); !strings.HasPrefix(line, "step ") {
		t.Fatalf("the job printed %q", line)
	}
	session.stop()
	t.Logf("%s", session.stdout.String())
	var truth map[string]uint64
	if text, err := os.ReadFile(filepath.Join(dir, "truth.json")); err != nil || json.Unmarshal(text, &truth) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Processes, func(x ledger.Process) bool { return x.PID == uint32(p.pid()) })
	last := s.LatestWalk(i) // on a busy machine, the only one
	if last == nil || last.Failure != "" || len(last.Allocators) != 1 {
		t.Fatalf("%d walks, %.300v", len(s.Walks), s.Walks)
	}
	parts := map[string]uint64{}
	for _, h := range last.Held {
		parts[heldPart(h.Path)] += h.Bytes
	}
	a := last.Allocators[0]
	for _, name := range []string{"model", "gradients", "optimizer", "batch", "leak", "activations"} {
		if got, want := float64(parts[name]), float64(truth[name]); want < 1<<20 || math.Abs(got-want) > 0.02*want+1<<20 {
			t.Errorf("%s: %.0f bytes, the job says %.0f", name, got, want)
		}
	}
	if share := float64(a.Held) / float64(a.Allocated); share < 0.99 || a.Held > a.Allocated {
		t.Errorf("holders have %d of %d bytes", a.Held, a.Allocated)
	}
	if a.Allocated != s.Tensors[0].Allocated || a.Older == 0 || a.Older == a.Allocated {
		t.Errorf("the walk is of %+v, the books say %+v", a, s.Tensors[0])
	}
	t.Logf("%v; %+v", parts, a)
}
