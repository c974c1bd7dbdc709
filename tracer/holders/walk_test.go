// SPDX-License-Identifier: Apache-2.0

package holders

import "testing"

// TestPathlessIsTheShareOfBytesWithoutAHolder decides if a walk is repeated: what was in motion is
// said to be, and allocations without a storage have no holder in many programs.
func TestPathlessIsTheShareOfBytesWithoutAHolder(t *testing.T) {
	held, none := &Holder{root: &Root{Kind: RootLocal}}, &Holder{root: &Root{Kind: RootNone}}
	for _, c := range []struct {
		storages []Storage
		want     float64
	}{
		{nil, 0},
		{[]Storage{{Bytes: 60, Holder: held}, {Bytes: 40, Holder: none}}, 0.4},
		{[]Storage{{Bytes: 60, Holder: held}, {Bytes: 40, Holder: none, InMotion: true}}, 0},
		{[]Storage{{Bytes: 60, Holder: held}, {Bytes: 40, Holder: none, Allocation: true}}, 0},
		{[]Storage{{Bytes: 50}, {Bytes: 50, Holder: none}}, 0.5},
	} {
		if got := (&Result{Storages: c.storages}).pathless(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.storages, got, c.want)
		}
	}
}
