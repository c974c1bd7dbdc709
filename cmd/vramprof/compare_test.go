// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// rankStacks are two lines of a program.
type rankStacks struct{}

func (rankStacks) Stack(id uint64) []callstack.Frame {
	return []callstack.Frame{
		{Function: "cudaMalloc", Address: 1, Mapping: &callstack.Mapping{Path: "/usr/lib/libcudart.so.13"}},
		{Function: []string{"", "Loader.next", "Trainer.step"}[id], File: "/job/train.py", Line: int(10 * id), Python: true},
		{Function: "main", File: "/job/main.py", Line: 5, Python: true},
	}
}

// rankMemory is what one rank does: it allocates MiB by line 10 and 20, and frees those of line 20
// before it ends.
type rankMemory struct {
	rank      string
	line1     uint64
	line2     uint64
	ends      bool
	freesLast bool
}

// writeRanks writes a capture of 10 s, in which each rank allocates at 1 s, and may free at 5 s and
// end at 8 s.
func writeRanks(t *testing.T, path string, ranks ...rankMemory) {
	t.Helper()
	const begin, second = uint64(1e12), uint64(time.Second)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var now atomic.Uint64
	now.Store(begin)
	w, err := capture.NewWriter(file, capture.Options{Host: "gpu-box-1", Clock: now.Load, Wall: time.Unix(1e9, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(rankStacks{})
	books := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	tell := func(in ledger.Input) {
		w.Tell(in)
		books.Tell(in)
	}
	event := func(e ledger.Event) {
		now.Store(e.Time)
		w.Apply(&e)
		books.Apply(&e)
	}
	tell(ledger.Begin{Time: begin})
	for i, r := range ranks {
		tell(ledger.Process{PID: uint32(100 + i), Comm: "python3", Begin: begin, Workload: ledger.Workload{Rank: r.rank}})
	}
	pid := func(i int) (pid, tid uint32) { return uint32(100 + i), uint32(100 + i) }
	for i, r := range ranks {
		p, tid := pid(i)
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: p, TID: tid, Time: begin + second, Address: 0x1000, Size: r.line1 << 20, Stack: 1, API: "cudaMalloc"})
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: p, TID: tid, Time: begin + second, Address: 0x2000, Size: r.line2 << 20, Stack: 2, API: "cudaMalloc"})
	}
	for i, r := range ranks {
		if p, tid := pid(i); r.freesLast {
			event(ledger.Event{Op: ledger.Free, Kind: ledger.Device, PID: p, TID: tid, Time: begin + 5*second, Address: 0x2000})
		}
	}
	for i, r := range ranks {
		if p, tid := pid(i); r.ends {
			event(ledger.Event{Op: ledger.Exit, PID: p, TID: tid, Time: begin + 8*second})
		}
	}
	now.Store(begin + 10*second)
	if err := w.End(books.Snapshot(begin+10*second, time.Unix(1e9, 0))); err != nil {
		t.Fatal(err)
	}
}

// compared runs compare and returns its output.
func compared(t *testing.T, wantCode int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	if code := run(append([]string{"vramprof", "compare"}, args...), &out, &errors); code != wantCode {
		t.Errorf("compare %v: exit status %d, %s%s", args, code, out.String(), errors.String())
	}
	return out.String(), errors.String()
}

func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("COLUMNS", "100")
	writeRanks(t, "run.vram", rankMemory{rank: "0", line1: 100, line2: 50}, rankMemory{rank: "1", line1: 100, line2: 50},
		rankMemory{rank: "2", line1: 100, line2: 50}, rankMemory{rank: "3", line1: 300, line2: 50})
	writeRanks(t, "one.vram", rankMemory{line1: 100, line2: 50, freesLast: true})
	writeRanks(t, "ended.vram", rankMemory{line1: 100, line2: 90, freesLast: true, ends: true})
	writeRanks(t, "empty.vram")
	writeProfile(t, "one.vram", "one.pb.gz")
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"run.vram"}, []string{
			"4 processes of run.vram on gpu-box-1, at the end, after 10s\n",
			"\nrank 3 has 200 MiB more than the median: 350 MiB, the median is 150 MiB\n",
			"\n  200 MiB more in /job/train.py:10 Loader.next: 300 MiB, the median is 100 MiB (100% of the\n    difference)\n",
			"    +200 MiB   100 MiB   100 MiB   100 MiB   100 MiB   300 MiB  /job/train.py:10 Loader.next\n",
			"         0 B  50.0 MiB  50.0 MiB  50.0 MiB  50.0 MiB  50.0 MiB  /job/train.py:20 Trainer.step\n",
		}},
		{[]string{"run.vram", "one.vram"}, []string{"\none has 700 MiB less than run: 100 MiB, run has 800 MiB\n", "  run  run.vram, 4 processes"}},
		{[]string{"one.vram@2s", "one.vram"}, []string{"2 moments of one.vram", "\nend has 50.0 MiB less than 2s: 100 MiB, 2s has 150 MiB\n"}},
		{[]string{"--at", "peak", "one.vram", "run.vram", "--by", "process"}, []string{"5 processes on gpu-box-1, each at its peak"}},
		{[]string{"one.vram", "ended.vram"}, []string{"2 files on gpu-box-1, each at its peak\n", "ended has 40.0 MiB more than one: 190 MiB, one has 150 MiB"}},
		{[]string{"one.vram@end", "ended.vram@end"}, []string{"each at its end"}},
		{[]string{"one.pb.gz", "run.vram"}, []string{"\nrun has 700 MiB more than one: 800 MiB, one has 100 MiB\n"}},
		{[]string{"empty.vram", "empty.vram@end"}, []string{"2 columns of empty.vram", "\nNone is odd"}},
		{[]string{"one.vram", "one.pb.gz"}, []string{"\nNone is odd"}},
		{[]string{"run.vram", "--mine", "main.py"}, []string{"200 MiB more in /job/main.py:5 main: 350 MiB, "}},
	} {
		out, _ := compared(t, exitDone, x.args...)
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", x.args, want, out)
			}
		}
	}
	for want, args := range map[string][]string{
		"one.vram has GPU memory of 1 process: name another capture, or two moments of it (one.vram@5m one.vram@end)": {"one.vram"},
		"one.pb.gz is a profile, which has only one moment (remove peak)":                                             {"one.pb.gz@peak", "run.vram"},
		"one.pb.gz is a profile, which is compared by file (name a second file)":                                      {"one.pb.gz"},
		"empty.vram has GPU memory of 0 processes: name another capture":                                              {"empty.vram"},
		"1h is after the end of the session":                                                                          {"run.vram", "--at", "1h"},
	} {
		if _, stderr := compared(t, exitUsage, args...); !strings.Contains(stderr, want) {
			t.Errorf("%v: %s", args, stderr)
		}
	}
}

func TestCompareWritesJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.vram")
	writeRanks(t, path, rankMemory{line1: 100}, rankMemory{line1: 100, line2: 50})
	out, _ := compared(t, exitDone, "--json", path)
	if err := validate("compare.json", []byte(out)); err != nil {
		t.Error(err)
	}
}

func writeProfile(t *testing.T, from, to string) {
	t.Helper()
	r, err := capture.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Clean(to))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := profile.Write(file, s, r); err != nil {
		t.Fatal(fmt.Errorf("write %s: %w", to, err))
	}
}
