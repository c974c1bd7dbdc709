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

// A helper's leak has its caller's line everywhere, sites of one line are one row that names what
// tells them apart, and PyTorch's plumbing is no leaf and no branch.
func TestLinesOfAHelperAndOfModules(t *testing.T) {
	type write = func(io.Writer, *ledger.Snapshot, callstack.Stacks, report.Options, Screen) error
	for name, c := range map[string]struct {
		write write
		row   string // of the model's line, at 120 columns
		leaks bool
	}{
		"lines-brief": {WriteLeaksBrief, "gpt.py:25 Block.forward, in GELU.forward, Linear.forward, Laye…", true},
		"lines-leaks": {WriteLeaks, "in GELU.forward, Linear.forward, LayerNorm.forward", true},
		"lines-table": {WriteTable, "gpt.py:25 Block.forward, in GELU", false},
		"lines-tree":  {WriteTree, "", false},
	} {
		for _, width := range []int{44, 80, 120} {
			var out bytes.Buffer
			if err := c.write(&out, reporttest.Helper(), reporttest.HelperStacks{}, report.Options{Top: 5}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, out.String(), width)
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), out.Bytes())
			if width < 120 {
				continue
			}
			if !strings.Contains(out.String(), c.row) {
				t.Errorf("%s lacks %q:\n%s", name, c.row, out.String())
			}
			if name != "lines-leaks" && strings.Contains(out.String(), "_call_impl") {
				t.Errorf("%s shows plumbing:\n%s", name, out.String())
			}
			if c.leaks && (!strings.Contains(out.String(), "leaking   /home/ada/gpt/buffer.py:20 Buffer.keep") || strings.Count(out.String(), "Leaking: 1 line") != 1) {
				t.Errorf("%s names no caller:\n%s", name, out.String())
			}
		}
	}
}
