// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecordsAreKeptApart(t *testing.T) {
	dir := t.TempDir()
	r, err := OpenRecords(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 22, 3, 12, 7, 0, time.UTC)
	size := uint64(1 << 30)
	for i := range 5 {
		if i == 3 { // a restart
			_ = r.Close()
			if r, err = OpenRecords(dir, 3); err != nil {
				t.Fatal(err)
			}
		}
		path, err := r.Add(Record{
			Time: begin.Add(-time.Duration(i) * time.Hour), PID: uint32(100 + i), Comm: "train\x1b[2J", RequestedSize: &size,
			GPU: &RecordGPU{UUID: "GPU-1"}, Others: []RecordProcess{{PID: 7, Comm: "infer", Bytes: 5, Line: "serve.py:8"}},
		}, []byte("text"), []byte("profile"))
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "text" {
			t.Errorf("%s: %q, %v", path, content, err)
		}
	}
	list, err := ReadRecords(dir)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if x := list[0]; x.PID != 104 || strings.Contains(x.Comm, "\x1b") || *x.RequestedSize != size || x.Others[0].Line != "serve.py:8" || x.Profile == "" {
		t.Errorf("%+v", x)
	}
	names, _ := os.ReadDir(filepath.Join(dir, "oom"))
	if len(names) != 9 {
		t.Errorf("%d files: %v", len(names), names)
	}
	for _, e := range names {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info, err)
		}
	}
	_ = os.WriteFile(filepath.Join(dir, "oom", "20261122T031207Z-000009-1.json"), []byte(`{"version":1,"others":7}`), 0o600)
	if list, err := ReadRecords(dir); err != nil || len(list) != 3 {
		t.Errorf("%d records, %v", len(list), err)
	}
	if list, err := ReadRecords(t.TempDir()); err != nil || len(list) != 0 {
		t.Errorf("%d records, %v", len(list), err)
	}
}

func TestRecordsOfAFullDiskReplaceTheOldest(t *testing.T) {
	dir := smallDisk(t, "128k")
	r, err := OpenRecords(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat("x", 10_000))
	for i := range 20 {
		if _, err := r.Add(Record{Time: time.Unix(1e9, 0), PID: uint32(i)}, text, text); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := ReadRecords(dir); err != nil || len(list) < 2 || list[0].PID != 19 {
		t.Errorf("%+v, %v", list, err)
	}
}
