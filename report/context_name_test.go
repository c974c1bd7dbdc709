// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

// TestACommandThatWasStartedHasACUDAContext: nothing of a process that began within the session is
// from before the attach.
func TestACommandThatWasStartedHasACUDAContext(t *testing.T) {
	for _, within := range []bool{false, true} {
		s := reporttest.Snapshot()
		for i := range s.Processes {
			s.Processes[i].Begin = s.Begin
			if within {
				s.Processes[i].Begin++
			}
		}
		j := report.Judge(s, reporttest.Stacks())
		for i, v := range j.Sites() {
			if v.Class == "leaking" && strings.Contains(j.GPUs[0].Used, "full in") == strings.Contains(v.Text, "the GPU is full in") {
				t.Errorf("site %d: %q below %q", i, v.Text, j.GPUs[0].Used)
			}
		}
		parts := s.Parts()
		for name, text := range map[string]string{
			"part": report.PartText(s, &parts[0]), "balance": strings.Join(report.Judge(s, reporttest.Stacks()).BalanceTexts(8), "\n"),
		} {
			if strings.Contains(text, "CUDA context ") != within || strings.Contains(text, "before attach") == within {
				t.Errorf("begun within the session %v: %s is %s", within, name, text)
			}
		}
	}
}
