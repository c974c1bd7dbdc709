// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAPathInAChrootIsThatWhichTheProcessSees(t *testing.T) {
	link := func(to string) string {
		root := filepath.Join(t.TempDir(), "root")
		if err := os.Symlink(to, root); err != nil {
			t.Fatal(err)
		}
		return root
	}
	for _, c := range []struct{ root, path, want string }{
		{link("/srv/jail"), "/srv/jail/usr/lib/libc10.so", "/usr/lib/libc10.so"},
		{link("/srv/jail"), "/srv/jailed/usr/lib/libc10.so", "/srv/jailed/usr/lib/libc10.so"},
		{link("/srv/jail"), "/usr/lib/libc10.so", "/usr/lib/libc10.so"},
		{link("/"), "/usr/lib/libc10.so", "/usr/lib/libc10.so"},
		{"/proc/0/root", "/usr/lib/libc10.so", "/usr/lib/libc10.so"},
	} {
		if got := InRoot(c.root, c.path); got != c.want {
			t.Errorf("%s is %s, want %s", c.path, got, c.want)
		}
	}
}
