// SPDX-License-Identifier: Apache-2.0

package html

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// The first section is the purposes of the memory, those of the two largest in full.
func TestThePageBeginsWithWhatTheMemoryIsFor(t *testing.T) {
	b := openBrowser(t)
	p := b.open(t, written(t, Input{Snapshot: reporttest.Explained(), Stacks: reporttest.HeldStacks(), Title: "explained"}), 1200, 1000, "light")
	p.T = t
	var first string
	p.eval(`document.querySelector("section:not([hidden])").id`, &first)
	var open []bool
	p.eval(`[...document.querySelectorAll("#purposes details")].map((d) => d.open)`, &open)
	if first != "purpose-section" || len(open) == 0 || !open[0] {
		t.Errorf("the first section is %q, with %v open", first, open)
	}
	if text := p.text("#purposes summary"); !strings.Contains(text, "python3") {
		t.Errorf("the first summary is %q", text)
	}
	p.clean()
}
