// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// writeArchive writes the history of a night: two programs from 22:00 to 1:30, a new capture every
// hour, and after a break of an hour one of them again, for a minute.
func writeArchive(t *testing.T, dir string) {
	t.Helper()
	var now atomic.Uint64
	now.Store(1e12)
	begin := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	var books *ledger.Ledger
	train := ledger.Process{PID: 100, Comm: "train", Begin: 1e12, Workload: ledger.Workload{Pod: "bert-0", Namespace: "ml"}}
	infer := ledger.Process{PID: 200, Comm: "infer", Begin: 1e12}
	o := archive.Options{
		Host: "gpu-box-1", Clock: now.Load,
		Wall:    func() time.Time { return begin.Add(time.Duration(now.Load() - 1e12)) },
		Opening: func(to ledger.Books) { books.Opening(to) },
	}
	event := func(w *archive.Writer, e ledger.Event) {
		e.Kind, e.TID, e.Time = ledger.Device, e.PID, now.Add(1000)
		w.Apply(&e)
		books.Apply(&e)
	}
	tell := func(w *archive.Writer, in ledger.Input) {
		w.Tell(in)
		books.Tell(in)
	}
	usage := func(w *archive.Writer, bytes uint64) {
		tell(w, ledger.UsageReading{Time: now.Load(), Usages: []ledger.Usage{{PID: 100, UUID: "GPU-1", Bytes: bytes}, {PID: 200, UUID: "GPU-1", Bytes: 64 << 20}}})
	}
	session := func(hours int) {
		w, err := archive.NewWriter(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		w.SetStacks(rankStacks{})
		books = ledger.New(ledger.Options{Begin: now.Load(), Host: o.Host})
		tell(w, ledger.Begin{Time: now.Load()})
		tell(w, train)
		tell(w, infer)
		for hour := range hours {
			event(w, ledger.Event{Op: ledger.Alloc, PID: 100, Address: uint64(hour+1) << 32, Size: 100 << 20, Stack: uint64(hour%2 + 1), API: "cudaMalloc"})
			event(w, ledger.Event{Op: ledger.Alloc, PID: 200, Address: uint64(hour+100) << 32, Size: 1 << 20, Stack: 1, API: "cudaMalloc"})
			usage(w, uint64(hour+1)*100<<20)
			n := w.Stats().Files
			if hour == hours-1 {
				break
			}
			now.Add(uint64(time.Hour))
			for end := time.Now().Add(10 * time.Second); w.Stats().Files == n && time.Now().Before(end); time.Sleep(time.Millisecond) {
				usage(w, uint64(hour+1)*100<<20)
			}
			for range 100 { // until the next one is current
				usage(w, uint64(hour+1)*100<<20)
				time.Sleep(5 * time.Millisecond)
			}
		}
		event(w, ledger.Event{Op: ledger.OutOfMemory, PID: 100, Size: 1 << 40, API: "cudaMalloc", Stack: 1})
		now.Add(uint64(30 * time.Minute))
		if err := w.End(&ledger.Snapshot{End: now.Load(), Wall: o.Wall()}); err != nil {
			t.Fatal(err)
		}
	}
	session(4)
	now.Add(uint64(time.Hour))
	session(1)
}

// ran runs a command in time zone UTC and returns its output.
func ran(t *testing.T, wantCode int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	if code := run(append([]string{"vramprof"}, args...), &out, &errors); code != wantCode {
		t.Errorf("%v: exit status %d, %s%s", args, code, out.String(), errors.String())
	}
	return out.String(), errors.String()
}

func TestReportsOfAnArchive(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	defer func() { time.Local = local }()
	dir := filepath.Join(t.TempDir(), "night")
	writeArchive(t, dir)
	out, _ := ran(t, exitDone, "report", dir, "--json")
	if err := validate("archive.json", []byte(out)); err != nil {
		t.Error(err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, columns := range []string{"44", "80", "120"} {
		t.Setenv("COLUMNS", columns)
		out, _ := ran(t, exitDone, "report", "night")
		for _, want := range []string{"Archive night of gpu-box-1\n", "5 captures", "vramprof did not run", " 400 MiB  train [100]\n", "ran out of memory once", "wanted 1.00 TiB"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s columns: no %q in\n%s", columns, want, out)
			}
		}
	}
	t.Setenv("COLUMNS", "100")
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"report", "night", "--process", "infer"}, []string{"highest GPU memory: process infer\n", "64.0 MiB  infer [200]"}},
		{[]string{"report", "--pod", "ml/bert-0", "night"}, []string{"pod ml/bert-0\n\n   400 MiB  train [100]"}},
		{[]string{"report", "night", "--pod", "other"}, []string{"No process has used CUDA: pod other"}},
		{[]string{"report", "night", "--at", "2026-11-21 22:30"}, []string{"100 MiB         1", "until 2026-11-21 22:30:00 UTC"}},
		{[]string{"report", "night", "--at", "2026-11-22T00:30:00+01:00"}, []string{"200 MiB         2", "until 2026-11-21 23:30:00 UTC"}},
		{[]string{"report", "night", "--at", "00:30"}, []string{"300 MiB         3", "until 2026-11-22 00:30:00 UTC"}},
		{[]string{"report", "night", "--at", "-2h"}, []string{"400 MiB         4", "until 2026-11-22 01:00:00 UTC"}},
		{[]string{"report", "night", "--at", "end", "--view", "table"}, []string{"/job/train.py:10 Loader.next", "until 2026-11-22 03:00:00 UTC"}},
		{[]string{"report", "night", "--view", "timeline", "--at", "23:30"}, []string{"until 2026-11-21 23:30:00 UTC"}},
		{[]string{"report", "night", "--between", "22:30,01:15"}, []string{"From 2026-11-21 22:30:00 UTC to 2026-11-22 01:15:00 UTC\n", "GPU memory: +300 MiB, 164 MiB → 464 MiB"}},
		{[]string{"report", "night", "--between", "2026-11-21 22:10..2026-11-21 22:50"}, []string{"GPU memory: 0 B, 164 MiB → 164 MiB"}},
		{[]string{"report", "night", "--at", "00:30", "--process", "infer"}, []string{"1 process on gpu-box-1", "3.00 MiB"}},
		{[]string{"report", "night", "--at", "00:30", "--pod", "bert-0", "--view", "table"}, []string{"train"}},
		{[]string{"report", "night", "--between", "22:30,01:15", "--process", "infer"}, []string{"GPU memory: 0 B, 64.0 MiB → 64.0 MiB"}},
		{[]string{"diff", "night@22:30", "night@00:30"}, []string{"GPU memory: +200 MiB"}},
		{[]string{"leaks", "night", "--at", "00:30"}, []string{"Loader.next"}},
		{[]string{"top", "night", "--once", "--at", "00:30"}, []string{"train"}},
		{[]string{"export", "night", "--at", "00:30", "-f", "folded", "-o", "night.folded"}, nil},
	} {
		out, _ := ran(t, exitDone, x.args...)
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: no %q in\n%s", x.args, want, out)
			}
		}
	}
	for _, x := range []struct {
		code int
		args []string
		want string
	}{
		{exitError, []string{"report", "night", "--at", "2026-11-22 02:00"}, "night: the archive has nothing at 2026-11-22 02:00:00 UTC: nearest are 2026-11-22 01:30:00 UTC and 2026-11-22 02:30:0"},
		{exitError, []string{"report", "night", "--at", "2026-11-20 02:00"}, "it begins at 2026-11-21 22:00:00 UTC"},
		{exitUsage, []string{"report", "night", "--at", "5m"}, `"5m" is not a moment of an archive (03:12, 'yesterday 03:12', '2026-11-21 22:00', -2h, begin, end)`},
		{exitNoProcess, []string{"report", "night", "--at", "00:30", "--process", "7"}, "no process is process 7"},
		{exitUsage, []string{"report", "night", "--at", "00:30", "--process", "7", "--view", "timeline"}, "--view timeline shows the whole session"},
		{exitUsage, []string{"report", "night", "--between", "22:10,22:50", "--pod", "bert-0", "--view", "tree"}, "has only --view summary"},
		{exitUsage, []string{"report", "night", "--at", "noon"}, `"noon" is not a moment`},
		{exitUsage, []string{"report", "night", "--between", "00:30,22:30"}, "22:30 is not after 00:30"},
		{exitUsage, []string{"report", "night", "--between", "22:30,00:30", "--view", "tree"}, "only --view summary"},
		{exitError, []string{"report", "."}, "no capture is in the folder"},
	} {
		if _, stderr := ran(t, x.code, x.args...); !strings.Contains(stderr, x.want) {
			t.Errorf("%q: %s", x.args, stderr)
		}
	}
}
