// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// expAvg returns what a snapshot shows as AdamW's exp_avg from before the attach.
func expAvg(s *ledger.Snapshot) (sum uint64) {
	kept := report.KeptBy(s)
	for _, h := range report.Holdings(s) {
		if h.Mark != report.MarkOlder {
			continue
		}
		for _, x := range kept[h.Process].Divide(s, &h) {
			if strings.Contains(x.Name(), "['exp_avg']") {
				sum += x.Bytes
			}
		}
	}
	return sum
}

// TestOlderMemoryOfATrainingIsDividedAsItIs: of a training without a pause, and of one whose
// allocator is silent while it is first read, several short sessions show exp_avg within 5 %, at
// all moments from the first walk on.
func TestOlderMemoryOfATrainingIsDividedAsItIs(t *testing.T) {
	setupAlone(t) // the job takes a processor, and a walk needs the other one
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("../../../../testdata/holders/adamw.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pause    string // s
		sessions int
	}{{"0", 1}, {"0.7", 1}} {
		env := root.Env(t, 1, 8<<30)
		p := startCommand(t, root.Command(env, script, c.pause))
		var truth struct {
			ExpAvg float64 `json:"exp_avg"`
		}
		if line := p.line(); json.Unmarshal([]byte(line), &truth) != nil || truth.ExpAvg < 10<<20 {
			t.Fatalf("the job printed %q", line)
		}
		for i := range c.sessions {
			file := filepath.Join(t.TempDir(), "run.vram")
			start(t, env, "record", "--holders=end", "-d", "1", "-p", fmt.Sprint(p.pid()), "-o", file).wait()
			checkExpAvg(t, fmt.Sprintf("pause %s s, session %d", c.pause, i), file, truth.ExpAvg)
		}
		p.Process.Kill() // it takes a whole CPU
	}
}

// listed returns how many bytes of exp_avg the latest walk of a snapshot found.
func listed(s *ledger.Snapshot) (sum float64) {
	if w := s.LatestWalk(0); w != nil {
		for i := range w.Held {
			if strings.Contains(w.Held[i].Path, "['exp_avg']") {
				sum += float64(w.Held[i].Bytes)
			}
		}
	}
	return sum
}

// checkExpAvg checks the end of a capture, and moments from the first walk and the first reading of
// NVML on: what a walk lists must be among what is from before the attach.
func checkExpAvg(t *testing.T, what, file string, want float64) {
	t.Helper()
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := func(moment uint64) *ledger.Snapshot {
		s, err := r.Snapshot(moment)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := at(r.End()).FirstWalk(0)
	if first == nil {
		t.Fatalf("%s: no walk found anything", what)
	}
	checked := 0
	const moments = 4
	for k := range uint64(moments + 1) {
		moment := first.Time + (r.End()-min(first.Time, r.End()))*k/moments
		s := at(moment)
		if len(s.Balances) == 0 || k < moments && listed(s) < 0.95*want { // on a busy machine, the first walk is late or finds less
			continue
		}
		checked++
		if got := float64(expAvg(s)); math.Abs(got-want) > 0.05*want {
			t.Errorf("%s, %v after the first walk: exp_avg has %.1f MiB, the job says %.1f", what, time.Duration(moment-first.Time), got/(1<<20), want/(1<<20))
		}
	}
	if checked == 0 {
		t.Errorf("%s: NVML was never read", what)
	}
}
