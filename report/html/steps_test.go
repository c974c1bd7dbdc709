// SPDX-License-Identifier: Apache-2.0

package html

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// stepsPage: a bar for each step, and the step of the peak above its phases, with the peak's phase
// by name, at any width.
func stepsPage(t *testing.T, b *browser) {
	in := Input{Snapshot: reporttest.Explained(), Stacks: reporttest.HeldStacks(), Steps: reporttest.Steps()}
	for _, width := range []int{400, 1200} {
		p := b.open(t, written(t, in), width, 900, "light")
		text := p.text("#steps-section")
		for _, want := range []string{"57 steps of 1.0s (55.6 a minute), certain by optimizer.step at train.py:40", "36.7 GiB, is in step 41 of 57, in backward", "Tensors grow by 12.0 MiB a step", "backward, the peak"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d: no %q in %q", width, want, text)
			}
		}
		var shapes []int
		p.eval(`["rect.step-bar", "path.step-line", "svg rect.phase-forward", "svg rect.phase-backward"].map((s) => document.querySelectorAll("#steps " + s).length)`, &shapes)
		if len(shapes) != 4 || shapes[0] != 57 || shapes[1] != 1 || shapes[2] != 1 || shapes[3] != 1 {
			t.Errorf("%d: shapes %v", width, shapes)
		}
		var wide bool
		p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
		if wide {
			t.Errorf("%d: the page is wider than the window", width)
		}
		p.clean()
	}
}
