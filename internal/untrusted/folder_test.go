// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOnlyAnOwnFolderIsOpened, none that another user can change.
func TestOnlyAnOwnFolderIsOpened(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(make("target", 0o700), link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unsafe := map[string]string{
		"link": link, "file": file, "group": make("group", 0o770), "others": make("others", 0o707), "like /tmp": make("tmp", 0o777|os.ModeSticky),
	}
	if os.Geteuid() == 0 {
		foreign := make("foreign", 0o755)
		if err := os.Chown(foreign, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		unsafe["of another user"] = foreign
	}
	for name, path := range unsafe {
		if root, err := OwnFolder(path, NoWriting); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v, %v", name, root, err)
		}
	}
	readable := make("readable", 0o755)
	if _, err := OwnFolder(readable, NoRights); !errors.Is(err, ErrUnsafe) {
		t.Errorf("one that others can enter: %v", err)
	}
	for _, path := range []string{readable, filepath.Join(dir, "new")} {
		root, err := OwnFolder(path, NoWriting)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		root.Close()
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
