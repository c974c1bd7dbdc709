// SPDX-License-Identifier: Apache-2.0

package remedy

import "testing"

// TestAnOutputThatIsRecomputedIsNotThereTwice: where the first node of a call frees its output,
// which it saved, what used the output outside has run before, so the first one is gone when the
// call is recomputed.
func TestAnOutputThatIsRecomputedIsNotThereTwice(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; x 1 batch; a 8 first; b 8 second; h 1 head
		g 1 engine; -h; gx 8 addmm; gw 2 addmm_w; -gw; -g; r 8 relued; -gx; -b; q 1 engine; -a; -r; -q; -x; e 1 batch`)
	if got := peakOf(t, p); got != 2+1+8+8+8+8 {
		t.Fatalf("peak %d as it ran", got)
	}
	again, _, seen, err := p.Checkpoint(ParseFunction("Block.forward"))
	if err != nil || seen.Count != 1 || peakOf(t, again) != 2+1+8+8+8+8 {
		t.Errorf("recomputed, %d MiB in %d calls: %v", peakOf(t, again), seen.Count, err)
	}
}
