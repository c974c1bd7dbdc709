// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"path/filepath"
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

func TestProcThatHidesProcessesLacksTheFirst(t *testing.T) {
	root := t.TempDir()
	if Hides() || !hides(root) {
		t.Errorf("/proc hides processes: %v; an empty one: %v", Hides(), hides(root))
	}
	if err := os.Mkdir(filepath.Join(root, "1"), 0o500); err != nil {
		t.Fatal(err)
	}
	if hides(root) {
		t.Error("with process 1, it hides some")
	}
}
