// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestExplain(t *testing.T) {
	var out bytes.Buffer
	if err := WriteExplain(&out, reporttest.Explained(), reporttest.HeldStacks(), nil, report.Options{}); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "explain.json", out.Bytes())
}

// TestExplainKeepsHostileNamesOffTerminals: names of processes, GPUs and modules are the process's.
func TestExplainKeepsHostileNamesOffTerminals(t *testing.T) {
	s := reporttest.TorchSnapshot()
	s.Processes[0].Comm, s.Balances[0].UUID, s.Processes[0].Devices[0] = "\x1b[31mevil", "GPU-\x1b", "GPU-\x1b"
	st := reporttest.TorchStacks()
	for i := range st[1] {
		if st[1][i].Function == "Block.forward" {
			st[1][i].Function, st[1][i].File = "Block\x1b.forward", "/tmp/\x1bevil.py"
		}
	}
	var out bytes.Buffer
	if err := WriteExplain(&out, s, st, nil, report.Options{}); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte(`\u001b`)) || bytes.Contains(out.Bytes(), []byte("\x1b")) {
		t.Errorf("%s", out.Bytes())
	}
}

func TestExplainHasSteps(t *testing.T) {
	r := NewExplain(reporttest.Explained(), reporttest.HeldStacks(), nil, report.Options{Steps: reporttest.Steps()})
	if len(r.Steps) != 1 {
		t.Fatalf("%+v", r.Steps)
	}
	x := r.Steps[0]
	if x.By != "optimizer.step" || x.Sure != "certain" || x.Count != 57 || x.GrowthBytes != 12<<20 || len(x.List) != 57 || x.List[40].High != x.Peak.Bytes {
		t.Errorf("%+v", x)
	}
	if p := x.Peak; p.Step != 41 || p.Phase != "backward" || len(p.Phases) != 4 || len(p.Curve) < 8 || x.Moment == nil {
		t.Errorf("%+v", p)
	}
}
