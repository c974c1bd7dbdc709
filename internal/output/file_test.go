// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/tracer/capture"
)

func writing(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// named is an output on a file system without unnamed files.
func named(t *testing.T, path string, force bool) *File {
	t.Helper()
	o := &File{path: path, name: filepath.Base(path), dir: opened(t, filepath.Dir(path)), force: force}
	var err error
	if o.File, o.temporary, err = o.dir.temporary(); err != nil {
		t.Fatal(err)
	}
	return o
}

func opened(t *testing.T, path string) Folder {
	t.Helper()
	dir, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func unnamed(t *testing.T, path string, force bool) *File {
	t.Helper()
	o, err := Create(path, force)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOutputAppearsWholeOrNotAtAll(t *testing.T) {
	for name, create := range map[string]func(*testing.T, string, bool) *File{"named": named, "unnamed": unnamed} {
		for _, force := range []bool{false, true} {
			t.Setenv("TMPDIR", t.TempDir())
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			o := create(t, path, force)
			if err := o.Save(writing("all"), "other"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			o.Discard()
			checkFolder(t, dir, map[string]string{"out": "all"})

			o = create(t, filepath.Join(dir, "second"), force)
			_, _ = o.WriteString("half")
			o.Discard()
			checkFolder(t, dir, map[string]string{"out": "all"})
		}
	}
}

func TestOutputKeepsWhatAppearedMeanwhileUnlessForced(t *testing.T) {
	for name, create := range map[string]func(*testing.T, string, bool) *File{"named": named, "unnamed": unnamed} {
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		kept, forced := create(t, path, false), create(t, path, true)
		if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := kept.Save(writing("ours"), "other"); !errors.Is(err, ErrExists) || !errors.As(err, &Error{}) {
			t.Errorf("%s: %v", name, err)
		}
		kept.Discard()
		checkFolder(t, temporary, map[string]string{"other": "ours"})
		if err := forced.Save(writing("forced"), "other"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkFolder(t, dir, map[string]string{"out": "forced"})
	}
}

// TestOutputAppearsInTheFolderThatExistedWhenItWasCreated, wherever its path leads when it is
// complete.
func TestOutputAppearsInTheFolderThatExistedWhenItWasCreated(t *testing.T) {
	for how, swap := range swaps {
		for name, create := range map[string]func(*testing.T, string, bool) *File{"named": named, "unnamed": unnamed} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, force %v", how, name, force), func(t *testing.T) {
					path, ours, theirs := swapped(t)
					kept, dropped := create(t, filepath.Join(path, "out"), force), create(t, filepath.Join(path, "dropped"), force)
					swap(t, path, ours, theirs)
					if err := kept.Save(writing("all"), "other"); err != nil {
						t.Error(err)
					}
					dropped.Discard()
					checkFolder(t, ours, map[string]string{"out": "all"})
					checkFolder(t, theirs, map[string]string{"out": "theirs"})
				})
			}
		}
	}
}

// TestACaptureIsNamedAndRemovedInItsFolder, even if its path leads to another folder meanwhile.
func TestACaptureIsNamedAndRemovedInItsFolder(t *testing.T) {
	for how, swap := range swaps {
		t.Run(how, func(t *testing.T) {
			path, ours, theirs := swapped(t)
			w, err := capture.NewWriter(&discarded{}, capture.Options{})
			if err != nil {
				t.Fatal(err)
			}
			f := &CaptureFile{File: unnamed(t, filepath.Join(path, "out"), false), Writer: w}
			swap(t, path, ours, theirs)
			if err := f.Publish(); err != nil {
				t.Error(err)
			}
			checkFolder(t, ours, map[string]string{"out": ""})
			checkFolder(t, theirs, map[string]string{"out": "theirs"})
			f.Discard()
			checkFolder(t, ours, nil)
			checkFolder(t, theirs, map[string]string{"out": "theirs"})
		})
	}
}

type discarded struct{}

func (*discarded) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (*discarded) Truncate(int64) error                   { return nil }

// swaps make a path lead to another folder instead of ours, which stays at the path "ours".
var swaps = map[string]func(t *testing.T, path, ours, theirs string){
	"a link": func(t *testing.T, path, ours, theirs string) {
		if err := errors.Join(os.Remove(path), os.Symlink(theirs, path)); err != nil {
			t.Fatal(err)
		}
	},
	"a folder": func(t *testing.T, path, ours, theirs string) {
		if err := errors.Join(os.Remove(path), os.Rename(theirs, path), os.Symlink(path, theirs)); err != nil {
			t.Fatal(err)
		}
	},
}

// swapped creates two folders, and a path that is a link to the first one.
func swapped(t *testing.T) (path, ours, theirs string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	path, ours, theirs = filepath.Join(dir, "path"), filepath.Join(dir, "ours"), filepath.Join(dir, "theirs")
	if err := errors.Join(os.Mkdir(ours, 0o700), os.Mkdir(theirs, 0o700), os.Symlink(ours, path), os.WriteFile(filepath.Join(theirs, "out"), []byte("theirs"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path, ours, theirs
}

func checkFolder(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		got, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil || string(got) != want[entry.Name()] {
			t.Errorf("%s holds %q (%v), want %q", entry.Name(), got, err, want[entry.Name()])
		}
	}
	if len(list) != len(want) {
		t.Errorf("%d files, want %d", len(list), len(want))
	}
}
