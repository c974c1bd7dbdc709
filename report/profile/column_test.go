// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestDoubtsAboutHoldersComeBack: from the kind of a comment, and from the sentence of older
// profiles.
func TestDoubtsAboutHoldersComeBack(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	if read := New(s, st).Column(); len(read.NoHolders) != 1 || read.NoHolders[0] != "no holders of infer [4300]: no Python interpreter in the process" {
		t.Errorf("%q", read.NoHolders)
	}
	old := Profile{p: &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "inuse_space", Unit: "bytes"}},
		Comments:   []string{"doubt: 3 events were lost", "doubt: holders of a [1]: x", "doubt: no holders of b [2]: y", "warning: z"},
	}}
	c := old.Column()
	if got := fmt.Sprint(c.Doubts, c.HolderDoubts, c.NoHolders); got != "[3 events were lost] [holders of a [1]: x] [no holders of b [2]: y]" {
		t.Error(got)
	}
}

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
