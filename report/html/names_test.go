// SPDX-License-Identifier: Apache-2.0

package html

import "testing"

// Paths of holders wrap where their column is narrow: their end names the function and the file.
func TestNamesOfHoldersAreNotCut(t *testing.T) {
	page := written(t, heldAtTheEnd())
	b := openBrowser(t)
	for _, width := range []int{400, 1200} {
		p := b.open(t, page, width, 1000, "light")
		p.T = t
		var names int
		var cut []string
		p.eval(`document.querySelectorAll("#holders td .name").length`, &names)
		p.eval(`[...document.querySelectorAll("#holders td .name, #holders td .place .cut")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)`, &cut)
		if names == 0 || len(cut) > 0 {
			t.Errorf("%d px: of %d names, these are cut: %q", width, names, cut)
		}
		p.clean()
	}
}
