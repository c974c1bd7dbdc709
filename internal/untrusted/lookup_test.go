// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel finds paths below a root in the same way.
func TestPathsLeadWhereOpenat2Leads(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a/b/c/file", "lib/x.so", "deep"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"abs": "/lib/x.so", "a/up": "../lib", "a/b/out": "../../../../../../lib/x.so", "a/same": "b/./c//file", "dangling": "/none", "loop": "loop2", "loop2": "loop",
		"folder": "a/b/", "root": "/", "dot": ".", "chain": "abs", "through": "lib/x.so/file", "slash": "lib/x.so",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	parts := []string{"a", "b", "c", "file", "lib", "x.so", "..", ".", "abs", "up", "out", "same", "dangling", "loop", "folder", "root", "dot", "chain", "through", "slash", "none"}
	compared := 0
	var try func(path string, depth int)
	try = func(path string, depth int) {
		if path != "" {
			compared++
			want, wantErr := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
			got, err := lookup(dir, path)
			if (err == nil) != (wantErr == nil) || err == nil && inode(t, got) != inode(t, want) {
				t.Errorf("%s: %v, want %v", path, err, wantErr)
			}
			if err == nil {
				unix.Close(got)
			}
			if wantErr == nil {
				unix.Close(want)
			}
		}
		if depth == 0 {
			return
		}
		for _, part := range parts {
			try(strings.TrimPrefix(path+"/"+part, "/"), depth-1)
		}
	}
	before := descriptors(t)
	try("", 3)
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors stay open", n-before)
	}
	if compared < 9000 {
		t.Errorf("%d paths were compared", compared)
	}
	if _, err := lookup(dir, strings.Repeat("dot/", maxLinks+1)); err != unix.ELOOP {
		t.Errorf("more links than the kernel follows: %v", err)
	}
}

func inode(t *testing.T, fd int) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(st.Dev, st.Ino)
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
