// SPDX-License-Identifier: Apache-2.0

package output

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordsOfOutOfMemoryErrorsStayInTheirFolder, which is opened once, when the session begins.
func TestRecordsOfOutOfMemoryErrorsStayInTheirFolder(t *testing.T) {
	for how, swap := range swaps {
		t.Run(how, func(t *testing.T) {
			path, ours, theirs := swapped(t)
			files := NewRecords(opened(t, path))
			swap(t, path, ours, theirs)
			if _, err := files.Write(7, []byte("text"), []byte("profile")); err != nil {
				t.Error(err)
			}
			checkFolder(t, ours, map[string]string{"vramprof-oom-7-1.txt": "text", "vramprof-oom-7-1.pb.gz": "profile"})
			checkFolder(t, theirs, map[string]string{"out": "theirs"})
		})
	}
}

func TestRecordsOfOOMsTakeTheNextFreeName(t *testing.T) {
	dir := t.TempDir()
	theirs := map[string]string{"vramprof-oom-7-1.txt": "theirs", "vramprof-oom-7-2.pb.gz": "theirs"}
	for name, content := range theirs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "vramprof-oom-8-4.pb.gz"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "vramprof-oom-8-5.txt")); err != nil {
		t.Fatal(err)
	}
	files := NewRecords(opened(t, dir))
	for _, c := range []struct {
		pid  uint32
		want string
	}{{7, "vramprof-oom-7-3"}, {8, "vramprof-oom-8-6"}, {9, "vramprof-oom-9-7"}} {
		path, err := files.Write(c.pid, []byte("text"), []byte("profile"))
		if err != nil || path != filepath.Join(dir, c.want+".txt") {
			t.Errorf("wrote %q (%v), want %s", path, err, c.want)
		}
		theirs[c.want+".txt"], theirs[c.want+".pb.gz"] = "text", "profile"
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	os.Remove(filepath.Join(dir, "vramprof-oom-8-4.pb.gz"))
	os.Remove(filepath.Join(dir, "vramprof-oom-8-5.txt"))
	checkFolder(t, dir, theirs)
}

func TestARecordThatFailsTakesNoNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files := NewRecords(opened(t, dir))
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if path, err := files.Write(7, nil, nil); err == nil || path != "" || !strings.Contains(err.Error(), "vramprof-oom-7-1.txt: no such file") {
		t.Errorf("%q, %v", path, err)
	}
	files.dir = opened(t, t.TempDir())
	if path, err := files.Write(7, nil, nil); err != nil || filepath.Base(path) != "vramprof-oom-7-1.txt" {
		t.Errorf("%q, %v", path, err)
	}
}
