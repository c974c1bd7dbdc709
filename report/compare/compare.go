// SPDX-License-Identifier: Apache-2.0

// Package compare puts GPU memory side by side by line of the user's own code: of processes, files
// and moments as columns, of which it flags outliers, or of two profiles as differences.
package compare

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// New puts columns side by side. There must be at least two.
func New(columns []Column) *Comparison {
	c := &Comparison{Columns: columns}
	c.Names, c.ByRank = columnNames(columns)
	c.Rows = alignRows(columns)
	c.Total = Row{Bytes: make([]int64, len(columns))}
	if len(c.Rows) > 0 {
		c.Total = Sum(c.Rows, "")
	}
	c.Total.Frame = callstack.Frame{Function: "all GPU memory", Mark: true}
	for i := range c.Rows {
		c.Rows[i].measure()
	}
	slices.SortStableFunc(c.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(report.Magnitude(b.Difference), report.Magnitude(a.Difference)), cmp.Compare(b.Max, a.Max))
	})
	c.judge()
	return c
}
