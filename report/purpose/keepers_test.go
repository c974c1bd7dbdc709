// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// TestRowsSayWhoKeepsThem: one holder with its container, the graph of a variable, what the paths
// of many have in common, and the largest one where they have nothing in common.
func TestRowsSayWhoKeepsThem(t *testing.T) {
	held := func(bytes uint64, path string, frames ...string) report.HeldShare {
		return report.HeldShare{Line: report.LineOf(&ledger.Held{Holder: ledger.Holder{Path: path, Frames: frames, Found: true, Entries: -1}}), Bytes: bytes}
	}
	list := held(960, `local "t".history[*] of main() (train.py:7)`, "main() (train.py:7)", "t", "history[*]")
	list.Line.Container, list.Line.Containers, list.Line.Entries = "list", 1, 435
	graph := held(1000, `local "loss" (autograd graph) of main() (train.py:7)`, "main() (train.py:7)", "loss (autograd graph)")
	graph.Line.Retention = retention.Graph
	for _, c := range []struct {
		want string
		kept []report.HeldShare
	}{
		{"", nil},
		{"kept by t.history in main() (train.py:7), list of 435", []report.HeldShare{list, held(5, "local", "f()")}},
		{"kept by the graph of loss in main() (train.py:7)", []report.HeldShare{graph}},
		{"kept by model.layers.*", []report.HeldShare{held(500, "model.layers.*.a", "__main__", "model", "layers.*", "a"), held(480, "model.layers.*.b", "__main__", "model", "layers.*", "b")}},
		{"50% kept by model.a", []report.HeldShare{held(500, "model.a", "__main__", "model", "a"), held(480, "ema.a", "__main__", "ema", "a")}},
		{"50% kept by models.bert.x", []report.HeldShare{held(500, "models.bert.x", "models", "bert", "x"), held(480, "models.y", "models", "y")}},
		{"kept by local_rank.a", []report.HeldShare{held(980, "local_rank.a", "__main__", "local_rank", "a")}},
		{"40% kept by model", []report.HeldShare{held(400, "model", "__main__", "model")}},
		{"", []report.HeldShare{held(4, "model", "__main__", "model")}},
		{"kept by an old path", []report.HeldShare{held(1000, "an old path")}},
		{"kept by " + untrusted.Clean("a\x1b"), []report.HeldShare{held(1000, "a\x1b", "__main__", "a\x1b")}},
	} {
		r := Row{Bytes: 1000, KeptBy: c.kept}
		if got := r.KeptText(); strings.ContainsRune(got, 0x1b) || got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}

// TestHoldersOfARowAreAtMostTheRow: they are the same bytes that the row is made of.
func TestHoldersOfARowAreAtMostTheRow(t *testing.T) {
	rows := 0
	for _, b := range Of(reporttest.Explained(), reporttest.HeldStacks()) {
		for _, r := range b.Rows {
			var sum uint64
			for _, k := range r.KeptBy {
				sum += k.Bytes
			}
			if r.Kind == Weights || r.Kind == State {
				rows++
				if sum != uint64(r.Bytes) {
					t.Errorf("%d of %d bytes of %s are kept", sum, r.Bytes, r.Name())
				}
			}
			if b.Beyond.Sum() == 0 && sum > uint64(r.Bytes) {
				t.Errorf("%d bytes of %s are kept, and it has %d", sum, r.Name(), r.Bytes)
			}
		}
	}
	if rows != 2 {
		t.Errorf("%d rows", rows)
	}
}

// TestActivationsWithoutAModuleAreNotSaidToBeOutsideOfModules: captures do not know the modules of
// memory from before the attach.
func TestActivationsWithoutAModuleAreNotSaidToBeOutsideOfModules(t *testing.T) {
	if got := (&Piece{Bytes: 1}).Name(Activations); got != "no module is known" {
		t.Errorf("the piece is %q", got)
	}
}
