// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPagerOfAPrivilegedUserIsSecureLess runs no program that PAGER names with privileges.
func TestPagerOfAPrivilegedUserIsSecureLess(t *testing.T) {
	dir := t.TempDir()
	less := filepath.Join(dir, "less")
	if err := os.WriteFile(less, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("PAGER", "most -s")
	if c := pager(true); c == nil || c.Path != less || !slices.Contains(c.Env, "LESSSECURE=1") {
		t.Errorf("with privileges: %v", c)
	}
	if c := pager(false); c == nil || !slices.Equal(c.Args, []string{"/bin/sh", "-c", "most -s"}) {
		t.Errorf("without: %v", c)
	}
	for _, none := range []string{"", "cat"} {
		t.Setenv("PAGER", none)
		if c := pager(true); c != nil {
			t.Errorf("PAGER=%q: %v", none, c)
		}
	}
}
