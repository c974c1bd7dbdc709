// SPDX-License-Identifier: Apache-2.0

package html

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

// The table has one row for each line of code, which names what its stacks differ by; a leak of a
// helper is the line of its caller. A button goes through the stacks of a row.
func TestThePageHasOneRowForEachLine(t *testing.T) {
	s, stacks := reporttest.Helper(), reporttest.HelperStacks{}
	b := openBrowser(t)
	p := b.open(t, written(t, Input{Snapshot: s, Stacks: stacks, Title: "helper", Verdicts: report.Judge(s, stacks).Sites()}), 1400, 1000, "light")
	p.T = t
	var rows []string
	p.eval(`[...document.querySelectorAll("#sites tbody tr")].map((row) => row.innerText.replace(/\s+/g, " "))`, &rows)
	want := [][]string{
		{"1.17 GiB", "Buffer.keep", "leaking"}, {"1.13 GiB", "Block.forward", "in GELU.forward, Linear.forward, LayerNorm.forward"}, {"544 MiB", "to_gpu", "steady"},
	}
	found := 0
	for _, row := range rows {
		for _, texts := range want {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(row, text)
			}
			if all {
				found++
			}
		}
	}
	if found != len(want) || len(rows) != len(want) {
		t.Errorf("%d rows, %d of them as they should be: %q", len(rows), found, rows)
	}
	p.click("#sites tbody tr:nth-child(2) button")
	seen := ""
	for range 3 {
		seen += p.text("#selected-facts")
		p.click("#selected-next")
	}
	for _, text := range []string{"1 of 3", "2 of 3", "3 of 3", "512 MiB", "384 MiB", "256 MiB"} {
		if !strings.Contains(seen, text) {
			t.Errorf("the stacks of a row lack %q: %q", text, seen)
		}
	}
	p.clean()
}
