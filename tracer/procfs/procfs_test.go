// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTheUserOfAProcessIsTheRealOne(t *testing.T) {
	for text, want := range map[string]uint32{
		"Name:\tsudo\nUid:\t1000\t0\t0\t0\nGid:\t0\n": 1001, "Uid:\t0\t0\t0\t0\n": 1, "": ledger.NoUser, "Uid:\tx\n": ledger.NoUser,
	} {
		if got := parseUser(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
