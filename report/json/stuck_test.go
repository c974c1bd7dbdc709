// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestJSONOfWhatKeepsTheCache(t *testing.T) {
	s, st := reporttest.Stuck(), reporttest.StuckStacks()
	text, err := json.MarshalIndent(NewLeaks(s, st, report.Options{Top: 2}).Stuck, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "stuck.json", append(text, '\n'))
	for _, top := range []int{1, 2, 10} {
		r := NewLeaks(s, st, report.Options{Top: top}).Stuck[0]
		sum := r.MoreBytes
		for _, row := range r.Rows {
			sum += row.StuckBytes
		}
		if sum != r.StuckBytes || len(r.Rows) > top || r.StuckBytes+r.IdleBytes != r.CacheBytes {
			t.Errorf("%d rows and the rest add up to %d of %+v", len(r.Rows), sum, r)
		}
	}
}
