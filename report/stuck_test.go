// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestTextsNameTheFirstLineThatHoldsACache(t *testing.T) {
	s, st := reporttest.Stuck(), reporttest.StuckStacks()
	const want = "python3 [4242] on cuda:0: 5.21 GiB of 6.39 GiB of cache lie in 340 segments with live tensors, and cannot go back to the driver: " +
		"480 MiB in 240 tensors hold 4.69 GiB in 240 segments, from /home/ada/llm/metrics.py:31 Metrics.update"
	if list := report.NewTexts(s, st).Remarks; !slices.Contains(list, want) {
		t.Errorf("texts %q, want %q", list, want)
	}
	s.Processes[0].End = s.End
	if list := report.StuckTexts(s, st); len(list) != 0 {
		t.Errorf("of a process that has ended: %q", list)
	}
}
