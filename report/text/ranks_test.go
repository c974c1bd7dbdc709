// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// What the ranks of a job have in common is one row, which names the ranks and those that differ.
func TestLinesOfManyRanksAreOneRow(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks, report.Options, Screen) error{
		"ranks-brief": WriteLeaksBrief, "ranks-leaks": WriteLeaks, "ranks-summary": WriteSummary,
	} {
		for _, width := range []int{44, 80, 120} {
			var out bytes.Buffer
			if err := write(&out, reporttest.LeakingRanks(8), reporttest.LeakingRanksStacks(), report.Options{}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, out.String(), width)
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), out.Bytes())
			text := strings.Join(strings.Fields(out.String()), " ")
			wants := []string{"in each of 8 processes (ranks 0 to 7)", "most in rank 0"}
			if name != "ranks-summary" {
				wants = append(wants, "Leaking: 2 lines", "2.92 GiB/min together, most in rank 7", "only in rank 3 of 8 processes")
			}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%s at %d columns lacks %q:\n%s", name, width, want, out.String())
				}
			}
		}
	}
}
