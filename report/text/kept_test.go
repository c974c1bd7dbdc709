// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestReportsOfHeldMemory(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	for name, write := range map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks, report.Options, Screen) error{
		"held-summary": WriteSummary, "held-leaks": WriteLeaks, "held-table": WriteTable, "held-tree": WriteTree,
	} {
		for _, width := range []int{44, 80, 120} {
			var b bytes.Buffer
			if err := write(&b, s, st, report.Options{Top: 3}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, b.String(), width)
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), b.Bytes())
		}
	}
}
