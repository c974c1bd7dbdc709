// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSocketIsOnlyInAFolderThatNobodyElseCanChange(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, mode os.FileMode, uid int, content bool) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if content {
			if err := os.WriteFile(filepath.Join(path, "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if uid != 0 {
			if err := os.Chown(path, uid, uid); err != nil {
				t.Skip("needs root")
			}
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(folder("target", 0o700, 0, false), link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a link": link, "of another user": folder("foreign", 0o755, 1000, false), "open to another user": folder("foreign2", 0o777, 1000, false),
		"like /tmp": folder("tmp", 0o777|os.ModeSticky, 0, false), "used by others": folder("shared", 0o777, 0, true),
	} {
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := listenIn(path); err == nil {
			l.Close()
			t.Errorf("%s: there is a socket", name)
		}
		if after, err := os.Stat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: the mode was %v and is %v, %v", name, before.Mode(), after.Mode(), err)
		}
	}
	for name, path := range map[string]string{
		"new": filepath.Join(dir, "a", "new"), "own": folder("own", 0o755, 0, true), "an empty volume of Kubernetes": folder("volume", 0o777, 0, false),
	} {
		l, err := listenIn(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l.Close()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}
