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

// TestAStateThatGoesOnJoinsNoPasses: the second pass saves the state of the first one, which has no
// graph, and its backward pass frees that.
func TestAStateThatGoesOnJoinsNoPasses(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; a 8 first; b 8 second; s 1 first; u 1 second; h 1 head; g 1 engine; -h; -b; g2 1 engine; -a; -g; g3 1 engine; -g2; -g3
		c 8 first; d 8 second; h2 1 head; k 1 engine; -h2; -d; k2 1 engine; -c; -k; -s; k3 1 engine; -k2; -u; k4 1 engine; -k3; -k4; e 1 batch`)
	if len(p.passes) != 2 {
		t.Errorf("%d passes", len(p.passes))
	}
}
