// SPDX-License-Identifier: Apache-2.0

package html

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// The purposes of the two largest are shown in full.
func TestPurposesOfTheLargestAreOpen(t *testing.T) {
	b := openBrowser(t)
	p := b.open(t, written(t, Input{Snapshot: reporttest.Explained(), Stacks: reporttest.HeldStacks(), Title: "explained"}), 1200, 1000, "light")
	p.T = t
	var open []bool
	p.eval(`[...document.querySelectorAll("#purposes details")].map((d) => d.open)`, &open)
	if len(open) == 0 || !open[0] {
		t.Errorf("open are %v", open)
	}
	if text := p.text("#purposes summary"); !strings.Contains(text, "python3") {
		t.Errorf("the first summary is %q", text)
	}
	p.clean()
}
