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

// A loop of one user that starts failing programs, and a process of another that fails again and
// again, leave the record of a third.
func TestALoopOfErrorsLeavesTheRecordsOfOthers(t *testing.T) {
	dir := t.TempDir()
	r, err := OpenRecords(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	add := func(pid, user uint32) {
		t.Helper()
		at++
		if _, err := r.Add(Record{Time: time.Unix(int64(1e9+at), 0), PID: pid, User: &user}, []byte("text"), []byte("profile")); err != nil {
			t.Fatal(err)
		}
	}
	add(7, 1000)
	add(8, 1000)
	add(9, 1001)
	for i := range uint32(30) {
		add(100+i, 1002)
		add(9, 1001)
		if i == 15 {
			_ = r.Close()
			if r, err = OpenRecords(dir, 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(10, 1001)
	list, err := ReadRecords(dir)
	if err != nil || len(list) != 10 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	users, pids := map[uint32]int{}, map[uint32]int{}
	for _, x := range list {
		users[*x.User]++
		pids[x.PID]++
	}
	if pids[7] != 1 || pids[8] != 1 || pids[10] != 1 || users[1001] != 4 || users[1002] != 4 {
		t.Errorf("records by user: %v, by process %v", users, pids)
	}
}
