// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestAComparisonInJSON(t *testing.T) {
	s := reporttest.RanksSnapshot(5)
	var columns []compare.Column
	for i := range s.Processes {
		c := compare.NewColumns(s, reporttest.TorchStacks(), []int{i})[0]
		c.File, c.Moment, c.Process.Pod = "run.vram", "end", "llama-0"
		columns = append(columns, c)
	}
	columns[4].File, columns[4].Error, columns[4].Doubts = "moved.vram", 1, []string{"\x1b[31m12 events were lost"}
	columns[3].Held[2].Keepers = []compare.Keeper{{Path: "model.losses[*]", Bytes: 1 << 30}}
	for k := range columns[4].Held {
		if f := &columns[4].Held[k].Frame; f.Line == 88 {
			f.Line = 91
		}
	}
	var b bytes.Buffer
	if err := WriteComparison(&b, compare.New(columns)); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "compare.json", b.Bytes())
	var r CompareReport
	if err := json.Unmarshal(b.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for i := range r.Columns {
		var sum int64
		for _, row := range r.Rows {
			sum += row.Bytes[i]
		}
		if sum != r.Total.Bytes[i] {
			t.Errorf("rows of %s add up to %d, the total is %d", r.Columns[i].Name, sum, r.Total.Bytes[i])
		}
	}
}
