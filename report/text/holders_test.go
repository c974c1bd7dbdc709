// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/holders"
)

func TestHoldersText(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	early := reporttest.Walk(t, "synthetic-early.image", begin)
	later := reporttest.Walk(t, "synthetic-later.image", begin.Add(30*time.Second))
	at := func(second, losses int) *holders.Result {
		return reporttest.TrainingWalk(begin.Add(time.Duration(second)*time.Second), 3, 4, losses)
	}
	for _, width := range []int{44, 80, 120} {
		for name, h := range map[string]report.Holders{
			"holders": {PID: 4242, Comm: "python3\x1b[31m", Result: early},
			"unclear": {PID: 4242, Comm: "python3", Before: early, Result: later},
			"grown":   {PID: 4242, Comm: "python3", Before: at(0, 2), During: []*holders.Result{at(10, 4), at(20, 7)}, Result: at(30, 9)},
		} {
			var b bytes.Buffer
			if err := WriteHolders(&b, &h, report.Options{Top: 5}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, b.String(), width)
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), b.Bytes())
		}
	}
}

func TestHoldersOfOneDevice(t *testing.T) {
	var b bytes.Buffer
	h := report.Holders{Result: &holders.Result{}, Device: "cuda:7"}
	if err := WriteHolders(&b, &h, report.Options{}, Screen{}); err != nil || !strings.Contains(b.String(), "No tensors on cuda:7") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestAPathIsBrokenButNeverCut: its end names the tensor.
func TestAPathIsBrokenButNeverCut(t *testing.T) {
	for _, path := range []string{
		strings.Repeat("model.layers.31.", 12) + "weight", strings.Repeat("x", 100), "", "a", "größe.大小.weight", `local "outs"[*] of evaluate() (eval.py:41)`,
	} {
		for _, width := range []int{1, 2, 8, 18, 40, 200} {
			if got := strings.Join(pieces(path, width), ""); got != path {
				t.Errorf("%q in %d columns became %q", path, width, got)
			}
		}
	}
}

// TestNoSentenceStandsTwiceInAReport: what could be freed of one kind is explained once, and copies
// of a model are told apart.
func TestNoSentenceStandsTwiceInAReport(t *testing.T) {
	h := report.Holders{PID: 1, Result: &holders.Result{Waste: []holders.Waste{
		{Kind: holders.WasteFrozen, Holder: "a.weight.grad", Device: "cuda:0", Storages: 1, Bytes: 8 << 20, Whole: 8 << 20},
		{Kind: holders.WasteFrozen, Holder: "b.weight.grad", Device: "cuda:0", Storages: 1, Bytes: 4 << 20, Whole: 4 << 20},
		{Kind: holders.WasteEnded, Holder: "tasks[*]._result", Device: "cuda:0", Storages: 1, Bytes: 2 << 20, Whole: 2 << 20},
		{Kind: holders.WasteCopies, Holder: "model and ema.module", Device: "cuda:0", Storages: 16, Whole: 64 << 20},
	}}}
	var b bytes.Buffer
	if err := WriteHolders(&b, &h, report.Options{}, Screen{Width: 200}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{
		"gradients of parameters that require none": 1, "a.weight.grad": 1, "b.weight.grad": 1, "Could be freed: 14.0 MiB": 1, "Copies of a model": 1, "model and ema.module": 1, "64.0 MiB": 1, "a task that has ended": 1,
	} {
		if n := strings.Count(b.String(), text); n != want {
			t.Errorf("%q %d times\n%s", text, n, &b)
		}
	}
}
