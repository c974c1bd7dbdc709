// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func explainText(t *testing.T, s *ledger.Snapshot, st callstack.Stacks, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteExplain(&out, s, st, nil, report.Options{}, Screen{Width: width}); err != nil {
		t.Fatal(err)
	}
	reporttest.CheckText(t, out.String(), width)
	return out.String()
}

func TestExplain(t *testing.T) {
	for _, width := range []int{44, 80, 120} {
		reporttest.Golden(t, fmt.Sprintf("explain%d.txt", width), []byte(explainText(t, reporttest.Explained(), reporttest.HeldStacks(), width)))
	}
	for _, s := range []*ledger.Snapshot{reporttest.Snapshot(), reporttest.TorchSnapshot(), reporttest.KindsSnapshot(), reporttest.Caches()} {
		for _, width := range []int{20, 44, 80} {
			explainText(t, s, reporttest.TorchStacks(), width)
		}
	}
}

// TestExplainShowsStepsAndPhases: the steps by name, memory by step, and the step of the peak as a
// curve.
func TestExplainShowsStepsAndPhases(t *testing.T) {
	for _, width := range []int{44, 80, 120} {
		var out bytes.Buffer
		if err := WriteExplain(&out, reporttest.Explained(), reporttest.HeldStacks(), nil, report.Options{Steps: reporttest.Steps()}, Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, out.String(), width)
		reporttest.Golden(t, fmt.Sprintf("steps%d.txt", width), out.Bytes())
	}
}

func TestExplainOfNothing(t *testing.T) {
	if got := explainText(t, reporttest.Ended(), nil, 80); got != "No process holds GPU memory at this moment.\n" {
		t.Error(got)
	}
}

// TestSummariesBeginWithWhatMemoryIsFor: at most 8 rows of a process.
func TestSummariesBeginWithWhatMemoryIsFor(t *testing.T) {
	var out bytes.Buffer
	if err := WriteSummary(&out, reporttest.Explained(), reporttest.HeldStacks(), report.Options{}, Screen{Width: 80}); err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(out.String(), "\nWhat it is for: python3 [4242] on cuda:0")
	block, _, _ = strings.Cut(block, "\n\n")
	if lines := strings.Split(block, "\n"); !ok || len(lines) > 2+compactRows || !strings.Contains(block, "W weights") || strings.Contains(block, "Allocated since") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}
