// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
)

// TestOnlyReferencedNotesHaveANumber: a view without the figure of a doubt had a note "³" to which
// nothing referred.
func TestOnlyReferencedNotesHaveANumber(t *testing.T) {
	n := &notes{doubts: []report.Doubt{{At: report.AtStacks, Text: "stacks"}, {At: report.AtTotals, Text: "totals"}}}
	p := newPage(Screen{Width: 80})
	p.text(plain, 0, "Calls "+n.mark(report.AtTotals))
	footnotes(p, n)
	var b strings.Builder
	if err := p.writeTo(&b); err != nil {
		t.Fatal(err)
	}
	if want := "Calls ¹\n\n¹ totals\n! stacks\n"; b.String() != want {
		t.Errorf("it is %q, want %q", b.String(), want)
	}
}
