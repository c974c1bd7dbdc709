// SPDX-License-Identifier: Apache-2.0

package holders

import "testing"

// TestWhatHasNoHolderIsNoFurtherHolder: "also: no holder found[*]" was said of a list that nothing
// holds.
func TestWhatHasNoHolderIsNoFurtherHolder(t *testing.T) {
	for kind, want := range map[RootKind]bool{RootModule: true, RootLocal: true, RootNone: false, RootCycle: false, RootNative: false} {
		if h := (&Holder{root: &Root{Kind: kind}}); h.isPath() != want {
			t.Errorf("%v: %v", kind, h.isPath())
		}
	}
}
