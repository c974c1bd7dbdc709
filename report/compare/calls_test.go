// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"testing"

	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/reporttest"
)

// A row names by what the stacks of its line differ; the innermost line is a row's also where it
// leaks for one caller, so that the columns have the same lines.
func TestRowsNameWhatTheirStacksDifferBy(t *testing.T) {
	c := NewColumn(reporttest.Helper(), reporttest.HelperStacks{})
	rows := map[string][]apart.Call{}
	for _, r := range New([]Column{c, c}).Rows {
		rows[r.Frame.Function] = r.Calls
	}
	if calls, ok := rows["to_gpu"]; !ok || calls != nil || len(rows) != 2 {
		t.Errorf("rows %+v", rows)
	}
	if calls := rows["Block.forward"]; len(calls) != 3 || calls[0] != (apart.Call{Name: "GELU.forward", Bytes: 2 * 512 << 20}) {
		t.Errorf("the model's line calls %+v", calls)
	}
}
