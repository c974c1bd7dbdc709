// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildIDIsTheLinkers(t *testing.T) {
	for name, c := range map[string]struct{ flag, want string }{
		"an id": {"-Wl,--build-id=0x0123456789abcdef", "0123456789abcdef"},
		"none":  {"-Wl,--build-id=none", ""},
	} {
		library := filepath.Join(t.TempDir(), "lib.so")
		cmd := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-o", library, c.flag, "-")
		cmd.Stdin = strings.NewReader("int f(void) { return 1; }")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		opened, err := os.Open(library)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		info, err := opened.Stat()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(opened, uint64(info.Size()), Native())
		if err != nil {
			t.Fatal(err)
		}
		if got := f.BuildID(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func FuzzBuildID(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00ab\x00\x00"), uint64(4))
	f.Fuzz(func(t *testing.T, notes []byte, align uint64) {
		if id := buildID(notes, align); len(id) > 2*maxBuildID {
			t.Errorf("%d digits", len(id))
		}
	})
}

func TestABuildIDBeyondTheNotesIsNone(t *testing.T) {
	whole := []byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00ab\x00\x00")
	if got := buildID(whole, 4); got != "6162" {
		t.Fatalf("got %q", got)
	}
	for n := range len(whole) - 2 {
		if got := buildID(whole[:n], 4); got != "" {
			t.Errorf("of %d bytes: %q", n, got)
		}
	}
}
