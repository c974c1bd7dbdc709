// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestAProfileIsTheSameColumnAsItsCapture: rows, sums and the process agree.
func TestAProfileIsTheSameColumnAsItsCapture(t *testing.T) {
	for name, s := range map[string]*ledger.Snapshot{"ranks": reporttest.RanksSnapshot(1), "torch": reporttest.TorchSnapshot()} {
		st := reporttest.TorchStacks()
		column, read := compare.NewColumn(s, st), New(s, st).Column()
		c := compare.New([]compare.Column{column, read})
		for i := range c.Rows {
			if r := &c.Rows[i]; r.Bytes[0] != r.Bytes[1] {
				t.Errorf("%s: %+v has %d bytes in the capture, %d in the profile", name, r.Frame, r.Bytes[0], r.Bytes[1])
			}
		}
		if c.Total.Bytes[0] != c.Total.Bytes[1] || c.Total.Bytes[0] == 0 || read.All != column.All || read.Process.Rank != column.Process.Rank || read.Process.PID != column.Process.PID {
			t.Errorf("%s: %d and %d bytes, %d and %d processes, %+v and %+v", name, c.Total.Bytes[0], c.Total.Bytes[1], column.All, read.All, column.Process, read.Process)
		}
		if name == "torch" && len(read.Doubts) == 0 {
			t.Error("the profile has no doubts")
		}
	}
}
