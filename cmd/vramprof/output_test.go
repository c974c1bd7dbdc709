// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// named is an output on a file system that has no files without names.
func named(t *testing.T, path string, force bool) *output {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(path), ".vramprof-*")
	if err != nil {
		t.Fatal(err)
	}
	return &output{File: f, path: path, force: force, temporary: f.Name()}
}

func unnamed(t *testing.T, path string, force bool) *output {
	t.Helper()
	o, err := createOutput(path, force)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOutputAppearsWholeOrNotAtAll(t *testing.T) {
	for name, create := range map[string]func(*testing.T, string, bool) *output{"named": named, "unnamed": unnamed} {
		for _, force := range []bool{false, true} {
			t.Setenv("TMPDIR", t.TempDir())
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			o := create(t, path, force)
			if err := o.save(text("all"), "other"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			o.discard()
			checkFolder(t, dir, map[string]string{"out": "all"})

			o = create(t, filepath.Join(dir, "second"), force)
			_, _ = o.WriteString("half")
			o.discard()
			checkFolder(t, dir, map[string]string{"out": "all"})
		}
	}
}

func TestOutputKeepsWhatAppearedMeanwhileUnlessForced(t *testing.T) {
	for name, create := range map[string]func(*testing.T, string, bool) *output{"named": named, "unnamed": unnamed} {
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		kept, forced := create(t, path, false), create(t, path, true)
		if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := kept.save(text("ours"), "other"); !errors.Is(err, errExists) || exitCode(err) != exitError {
			t.Errorf("%s: %v", name, err)
		}
		kept.discard()
		checkFolder(t, temporary, map[string]string{"other": "ours"})
		if err := forced.save(text("forced"), "other"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkFolder(t, dir, map[string]string{"out": "forced"})
	}
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
