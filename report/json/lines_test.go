// SPDX-License-Identifier: Apache-2.0

package json

import (
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

// Lines and verdicts have the line that tells a leak apart, and what tells the stacks of a line
// apart.
func TestLinesInJSON(t *testing.T) {
	r := NewLeaks(reporttest.Helper(), reporttest.HelperStacks{}, report.Options{})
	if len(r.Lines) != 3 || len(r.Sites) != 6 || len(r.Verdicts) != 3 {
		t.Fatalf("%d lines, %d sites, %d verdicts", len(r.Lines), len(r.Sites), len(r.Verdicts))
	}
	if v := &r.Verdicts[0]; v.Class != "leaking" || v.Line.Function != "Buffer.keep" || v.Calls != nil {
		t.Errorf("the worst verdict is %+v", v)
	}
	byLine := map[string]uint64{}
	for i := range r.Sites {
		x := &r.Sites[i]
		byLine[x.Stack[x.Headline].Function] += x.LiveBytes
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		if byLine[l.Line.Function] != l.LiveBytes {
			t.Errorf("%s has %d bytes, its sites %d", l.Line.Function, l.LiveBytes, byLine[l.Line.Function])
		}
	}
	l := &r.Lines[1]
	if l.Line.Function != "Block.forward" || l.Sites != 3 || len(l.Calls) != 3 || l.Calls[0] != (CalleeReport{"GELU.forward", 512 << 20}) {
		t.Errorf("the line of the model is %+v", l)
	}
	for i, want := range []string{"", "model.blocks.*.mlp", "encoder.fc and decoder.fc"} {
		r := NewLeaks(reporttest.Modelled(), reporttest.HelperStacks{}, report.Options{})
		if got := r.Lines[i].Module; got != want {
			t.Errorf("line %d is of module %q, want %q", i, got, want)
		}
	}
	for i, want := range []string{"to_gpu", "model.blocks.*.mlp"} {
		x := newViewReport(View{Name: "table", Snapshot: reporttest.Modelled(), Stacks: reporttest.HelperStacks{}}, report.Options{}).Rows[i]
		if got := x.Function + x.Module; i == 1 && got != "Block.forward"+want || i == 0 && got != want {
			t.Errorf("row %d of the table is %q", i, got)
		}
	}
	rows := newViewReport(View{Name: "table", Snapshot: reporttest.Helper(), Stacks: reporttest.HelperStacks{}}, report.Options{}).Rows
	if len(rows) != 2 || len(rows[1].Calls) != 3 {
		t.Errorf("the table has %+v", rows)
	}
}
