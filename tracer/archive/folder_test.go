// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// TestAFolderThatAnotherUserCanChangeIsRefused: it could lead the archive elsewhere, or read it.
func TestAFolderThatAnotherUserCanChangeIsRefused(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	unsafe := []string{open, link}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := os.Mkdir(foreign, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		unsafe = append(unsafe, foreign)
	}
	for _, path := range unsafe {
		if w, err := NewWriter(path, Options{}); !errors.Is(err, untrusted.ErrUnsafe) {
			t.Errorf("%s: %v", path, err)
			if err == nil {
				_ = w.End(nil)
			}
		}
		if _, err := OpenRecords(path, 1); !errors.Is(err, untrusted.ErrUnsafe) {
			t.Errorf("records in %s: %v", path, err)
		}
		if list, err := os.ReadDir(path); err != nil || len(list) > 0 {
			t.Errorf("%s has %v, %v", path, list, err)
		}
	}
}

// TestNoFileThatWasThereIsWrittenInto: the name may be a link to another file.
func TestNoFileThatWasThereIsWrittenInto(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, plant := range map[string]func(string) error{
		"hard": func(to string) error { return os.Link(victim, to) },
		"soft": func(to string) error { return os.Symlink(victim, to) },
		"new":  func(string) error { return nil },
	} {
		if err := plant(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		f, err := createNew(root, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, _ = f.WriteString("index")
		f.Close()
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("%s: the other file has %q, %v", name, text, err)
		}
	}
}
