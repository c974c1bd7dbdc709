// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// GNU ld writes the pointers that lld leaves zero. Without them, the file must read the same.
func TestRelativeRelocationsAreApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libpython3.so")
	source := "const char *texts[] = {\"one\", \"two\", \"three\"}; static int n; int *numbers[] = {&n, 0, &n};"
	gcc := exec.Command("gcc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-x", "c", "-o", path, "-")
	gcc.Stdin = bytes.NewReader([]byte(source))
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	linked, ok := relocate(inMemory{bytes.NewReader(want)}).(relocated)
	if !ok || len(linked.pointers) < 5 {
		t.Fatalf("found %d pointers, want 5 and more", len(linked.pointers))
	}
	zeroed := bytes.Clone(want)
	for _, p := range linked.pointers {
		copy(zeroed[p.offset:], make([]byte, 8))
	}
	if bytes.Equal(zeroed, want) {
		t.Fatal("the linker has left them out itself")
	}
	file := relocate(inMemory{bytes.NewReader(zeroed)})
	for _, size := range []int{3, 8, 64, len(want)} { // pointers overlap reads in all ways
		for off := 0; off < len(want); off += size {
			got := make([]byte, min(size, len(want)-off))
			if _, err := file.ReadAt(got, int64(off)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[off:off+len(got)]) {
				t.Fatalf("%d bytes at %d are %x, want %x", size, off, got, want[off:off+len(got)])
			}
		}
	}
}
