// SPDX-License-Identifier: Apache-2.0

package lines_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/reporttest"
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
