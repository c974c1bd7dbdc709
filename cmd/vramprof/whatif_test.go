// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/whatif"
	reportjson "github.com/vramprof/vramprof/report/json"
)

func TestWhatIfFitsItsSchema(t *testing.T) {
	b := allocsim.NewBuilder(&allocsim.Trace{Version: "2.6"})
	for range 3 {
		b.Add(allocsim.Malloc, b.New(allocsim.Block{Requested: 30 << 20}))
		b.Add(allocsim.Step, 0)
	}
	job := &whatif.Job{Comm: "train", PID: 7, Trace: b.Trace(), Steps: 3, Other: 1 << 20, OtherKnown: true}
	r, err := whatif.Report("run.vram", []*whatif.Job{job}, whatif.Tries{}.Scenarios, 64<<20)
	if err != nil || len(r.Jobs[0].Scenarios) != 5 || r.Jobs[0].Scenarios[0].Verdict != "out_of_memory" {
		t.Fatalf("%+v, %v", r, err)
	}
	var out bytes.Buffer
	if err := reportjson.WriteWhatIf(&out, r); err != nil {
		t.Fatal(err)
	}
	if err := validate("whatif.json", out.Bytes()); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	var stderr bytes.Buffer
	out.Reset()
	if code := run([]string{"vramprof", "whatif", "--json", "../../internal/torchfile/testdata/segments.pickle"}, &out, &stderr); code != exitError {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if err := validate("whatif.json", out.Bytes()); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestWhatIfSaysHowToUseIt(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"--gpu", "big", "a"}, {"--set", "expandable_segments:maybe", "a"}, {"--set", "backend:cudaMallocAsync", "a"}, {"--empty-cache", "-1", "a"}} {
		var out, stderr bytes.Buffer
		if code := run(append([]string{"vramprof", "whatif"}, args...), &out, &stderr); code != exitUsage || !strings.HasPrefix(stderr.String(), "vramprof: ") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr.String())
		}
	}
}
