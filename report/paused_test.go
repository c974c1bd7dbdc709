// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/balance"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTensorsThatGrowWithoutALineAreNoOtherMeans: a budget lost the stacks, and the line may leak.
func TestTensorsThatGrowWithoutALineAreNoOtherMeans(t *testing.T) {
	trend := verdict.Trend{Class: verdict.Growing, Rate: 3 << 20, Grown: 120 << 20, Over: 40 * time.Second}
	for _, paused := range []bool{false, true} {
		s := &ledger.Snapshot{Tensors: []ledger.Tensors{{}}}
		if paused {
			s.Tensors[0].Phases = []ledger.Phase{{To: 1}}
		}
		b := GPUBalance{Balance: balance.Balance{Rows: []balance.Row{{Plane: balance.Tensors, Trend: trend, Process: -1, Site: -1}}}}
		b.say(s, nil)
		said, text := strings.Join(b.Beyond, "\n"), (&Judgement{paused: paused, GPUs: []GPUBalance{b}}).NoLineText()
		if paused != strings.Contains(said, "--budget off finds the line") {
			t.Errorf("paused %v: %q", paused, said)
		}
		if want := map[bool]string{false: "No line of code grows, but a GPU fills by other means (tensors)", true: "No line is known to grow, but a GPU fills (tensors)"}[paused]; text != want {
			t.Errorf("paused %v: %q, want %q", paused, text, want)
		}
	}
}

// TestNoLineGrowsAfterACacheWasGivenBack: memory that grew until CUDA had no more, and that PyTorch
// then gave back, no longer shows that it grew.
func TestNoLineGrowsAfterACacheWasGivenBack(t *testing.T) {
	s := &ledger.Snapshot{Begin: 5e9, End: 60e9, Processes: []ledger.Process{{}}, Tensors: []ledger.Tensors{{LiveBytes: 1 << 20}}}
	if text := Judge(s, nil).NoLineText(); text != "No line grows" {
		t.Errorf("%q", text)
	}
	s.Failures = []ledger.Failure{{Result: 1, LastTime: 50e9, Count: 1}, {Result: outOfMemory, LastTime: 17e9, Count: 1}}
	if text := Judge(s, nil).NoLineText(); text != "No line grows since CUDA ran out of memory at 12s, when PyTorch gave back its cache" {
		t.Errorf("%q", text)
	}
}
