// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
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

// Rows carry the name of the module whose memory they are, where a walk knows it.
func TestLinesHaveTheNamesOfModules(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks, report.Options, Screen) error{
		"modules-brief": WriteLeaksBrief, "modules-leaks": WriteLeaks, "modules-table": WriteTable,
	} {
		for _, width := range []int{44, 120, 160} {
			var out bytes.Buffer
			if err := write(&out, reporttest.Modelled(), reporttest.HelperStacks{}, report.Options{Top: 5}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, out.String(), width)
			if width != 120 {
				reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), out.Bytes())
			}
		}
	}
}

// TestSitesOfOneLineAreOneRowInEveryList: of an out-of-memory record, of the cache, and of what is
// asleep.
func TestSitesOfOneLineAreOneRowInEveryList(t *testing.T) {
	s, st := reporttest.Helper(), reporttest.HelperStacks{}
	const where, about = "/home/ada/gpt/gpt.py:25 Block.forward", "in GELU.forward, Linear.forward, LayerNorm.forward"
	sum := uint64(512+384+256) << 20
	var model []*ledger.Site
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Stack >= 4 && x.Stack <= 6 {
			x.Asleep = x.LiveBytes
			model = append(model, x)
		}
	}
	list := rowsBy(s, st, model, func(x *ledger.Site) uint64 { return x.Asleep })
	if len(list) != 1 || list[0].figure != sum || strings.Join(aboutRow(&list[0].Row), ", ") != about {
		t.Errorf("%d rows: %+v, want one with %d and %q", len(list), list, sum, about)
	}
	for _, x := range model {
		x.Asleep = 0
	}
	o := report.OOM{PID: 4242, Comm: "python3", Time: s.End, Stack: 1, API: "cudaMalloc", Kind: ledger.Device, Size: 8 << 30}
	var out bytes.Buffer
	if err := WriteOOM(&out, s, st, o, report.Options{}, Screen{Width: 120}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, where) != 1 || !strings.Contains(text, "1.13 GiB  "+where) || !strings.Contains(text, about) {
		t.Errorf("the record has no row %q with %q:\n%s", where, about, text)
	}
}

// TestAFigureAndItsUnitStayTogether on every width, and the line of a holder's function is not cut.
func TestAFigureAndItsUnitStayTogether(t *testing.T) {
	text := "steady, +18.3 MiB in the last 1.5s (+701 MiB/min), 5 % of 12 GiB; 30 B."
	for width := 14; width < 80; width++ {
		for _, line := range broken(width, " ", format.Words(text)) {
			if first := strings.Fields(line)[0]; strings.HasPrefix(first, "MiB") || strings.HasPrefix(first, "GiB") || strings.HasPrefix(first, "%") || first == "B." {
				t.Errorf("%d columns: a line begins with %q", width, line)
			}
		}
	}
	if got, want := pieces("local \"trainer\".metrics[*]._pointer (minitorch Tensor) of main() (train.py:154)", 40), " (train.py:154)"; got[len(got)-1] != want {
		t.Errorf("pieces %q, the last is not %q", got, want)
	}
}
