// SPDX-License-Identifier: Apache-2.0

package lines_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Rows of several ranks have the sums of theirs, and what is of one rank alone stays as it is.
func TestRowsOfRanksAddUp(t *testing.T) {
	s, st := reporttest.LeakingRanks(8), reporttest.LeakingRanksStacks()
	book := lines.New(s, st, report.Judge(s, st))
	rows := book.Rows(s.Sites)
	joined := book.Together(rows)
	var bytes, each, objects uint64
	var growth int64
	for i := range rows {
		bytes, objects, growth = bytes+rows[i].LiveBytes, objects+rows[i].LiveObjects, growth+rows[i].Growth
	}
	sites := 0
	for i := range joined {
		r := &joined[i]
		bytes, objects, growth, sites = bytes-r.LiveBytes, objects-r.LiveObjects, growth-r.Growth, sites+len(r.Sites)
		for _, n := range r.Bytes() {
			each += n
		}
		if r.Processes != nil {
			each -= r.LiveBytes
		}
	}
	if bytes != 0 || objects != 0 || growth != 0 || sites != len(s.Sites) || each != 0 {
		t.Errorf("bytes %d, objects %d, growth %d too few, %d of %d sites, %d beyond their rows", bytes, objects, growth, sites, len(s.Sites), each)
	}
	if len(rows) != 18 || len(joined) != 4 {
		t.Fatalf("%d rows, %d joined, want 18 and 4", len(rows), len(joined))
	}
	if r := &joined[0]; r.Frame.Function != "load" || len(r.Processes) != 8 || r.Process != 0 {
		t.Errorf("%+v", r)
	}
	if r := &joined[2]; r.Frame.Function != "Table.build" || r.Processes != nil || !slices.Equal(r.Of(), []int{0}) {
		t.Errorf("%+v", r)
	}
}

// Rows are joined that have no stack trace, but not those whose line is unknown, nor memory of
// others.
func TestWhatMayBeAnotherLineStaysApart(t *testing.T) {
	for _, c := range []struct {
		stack uint64
		kind  ledger.Kind
		rows  int
	}{{0, ledger.Tensor, 1}, {1, ledger.Tensor, 1}, {2, ledger.Tensor, 2}, {1, ledger.Imported, 2}} {
		st := reporttest.StackMap{1: {reporttest.Script("f", "/x/train.py", 1)}, 2: {{Function: "[JIT code]"}}}
		s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}, {PID: 8}}}
		for i := range s.Processes {
			s.Sites = append(s.Sites, ledger.Site{Process: i, Stack: c.stack, API: "torch", Kind: c.kind, LiveBytes: 5, LiveObjects: 1})
		}
		book := lines.New(s, st, nil)
		if rows := book.Together(book.Rows(s.Sites)); len(rows) != c.rows {
			t.Errorf("stack %d of kind %d: %d rows, want %d", c.stack, c.kind, len(rows), c.rows)
		}
	}
}
