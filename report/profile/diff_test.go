// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestADiffSaysWhichLineGrew(t *testing.T) {
	before, after, st := reporttest.TorchSnapshot(), reporttest.TorchSnapshot(), reporttest.TorchStacks()
	grown := &after.Sites[slices.IndexFunc(after.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device == 0 })]
	grown.LiveBytes += 1 << 30
	after.Balances[after.BalanceOf(grown.Process, 0)].Usage += 1 << 30
	for i := range after.Tensors {
		if x := &after.Tensors[i]; x.Process == grown.Process && x.Device == grown.Device {
			x.LiveBytes += 1 << 30
		}
	}
	a, b := New(before, st), New(after, st)
	var file, page bytes.Buffer
	if err := WriteDifference(&file, a, b); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := text.WriteDiff(&page, Diff(a, b), [2]string{"a.vram", "b.vram"}, report.Options{}, text.Screen{}); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "diff80.txt", page.Bytes())
	var sum int64
	for _, x := range read.p.Sample {
		sum += x.Value[valueOf(read.p, "inuse_space")]
	}
	if want := total(b) - total(a); sum != want {
		t.Errorf("the difference has %d bytes, want %d", sum, want)
	}
	page.Reset()
	if err := text.WriteDiff(&page, Diff(a, a), [2]string{}, report.Options{}, text.Screen{}); err != nil || strings.Contains(page.String(), "model.py") {
		t.Errorf("a profile differs from itself: %v\n%s", err, page.String())
	}
}

func TestADiffShowsTheLinesThatAreMine(t *testing.T) {
	before, after, st := reporttest.Snapshot(), reporttest.Snapshot(), reporttest.Stacks()
	after.Sites[0].LiveBytes += 1 << 20
	re := regexp.MustCompile("torch/nn/modules/linear")
	for _, change := range Diff(New(before, st).Mine(re), New(after, st).Mine(re)).Lines {
		if change.Frame.Function == "Linear.forward" {
			return
		}
	}
	t.Error("no line of linear.py, though it is called the user's own")
}

func total(p Profile) (sum int64) {
	for _, x := range p.p.Sample {
		sum += x.Value[valueOf(p.p, "inuse_space")]
	}
	return sum
}

// TestADiffNamesTheCallsOfALine by which its stacks differ.
func TestADiffNamesTheCallsOfALine(t *testing.T) {
	s, st := reporttest.Helper(), reporttest.HelperStacks{}
	for _, x := range Diff(New(&ledger.Snapshot{}, st), New(s, st)).Lines {
		want := ""
		if x.Frame.Function == "Block.forward" {
			want = "GELU.forward, Linear.forward, LayerNorm.forward"
		}
		if got := apart.CallsText(x.Calls); got != want {
			t.Errorf("%s: calls %q, want %q", x.Frame.Function, got, want)
		}
	}
}
