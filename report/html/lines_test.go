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

// A narrow column cuts the name of a file, and never the number of the line.
func TestSitesKeepTheLineNumberAtEveryWidth(t *testing.T) {
	s, stacks := reporttest.Helper(), reporttest.HelperStacks{}
	page := written(t, Input{Snapshot: s, Stacks: stacks, Title: "helper", Verdicts: report.Judge(s, stacks).Sites()})
	b := openBrowser(t)
	for _, width := range []int{400, 700, 950, 1200} {
		p := b.open(t, page, width, 1000, "light")
		p.T = t
		var cut []string
		p.eval(`[...document.querySelectorAll("#sites .place")].flatMap((place) => {
			const number = place.children[1], n = number.getBoundingClientRect(), cell = place.closest("td").getBoundingClientRect();
			return /^:\d+$/.test(number.textContent) && n.width > 8 && n.right <= cell.right + 0.5 && n.right <= place.getBoundingClientRect().right + 0.5 ? [] :
				[place.textContent + " " + n.left + " to " + n.right + " in a cell to " + cell.right];
		})`, &cut)
		if len(cut) > 0 {
			t.Errorf("%d px: %q", width, cut)
		}
		var places int
		p.eval(`document.querySelectorAll("#sites .place").length`, &places)
		if places != 3 {
			t.Errorf("%d px: %d places", width, places)
		}
		p.clean()
	}
}
