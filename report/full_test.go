// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
)

// TestWhenAGPUIsFullIsOneFigure: its usage and what leaks give two estimates.
func TestWhenAGPUIsFullIsOneFigure(t *testing.T) {
	g := &verdict.Group{Verdict: verdict.Verdict{Class: verdict.Leaking, Evidence: "12 survivors", UntilFull: time.Hour}}
	for said, want := range map[bool]string{false: "12 survivors; the GPU is full in 1h00m at this rate", true: "12 survivors"} {
		if got := evidenceText(g, said); got != want {
			t.Errorf("the GPU's sentence has it %v: %q, want %q", said, got, want)
		}
	}
}
