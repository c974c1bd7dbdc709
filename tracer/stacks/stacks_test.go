// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/unwind"
)

func TestFilesWithoutNamesAreWarnedOfUpToALimit(t *testing.T) {
	s := New(Max, symbolize.Options{})
	defer s.Close()
	for i := range maxNameWarnings + 3 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("lib%02d.so", i))
		if err := os.WriteFile(path, []byte("not ELF"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.symbols.AddFile(path, &callstack.Mapping{Path: path}, f, "")
	}
	list := s.Warnings()
	if len(list) != maxNameWarnings+1 || !strings.HasPrefix(list[0], "no names of lib00.so: ") ||
		list[maxNameWarnings] != "names of further files are incomplete: 3" {
		t.Errorf("got %d warnings:\n%s", len(list), strings.Join(list, "\n"))
	}
}

func TestALibraryThatBecomesKnownLaterIsNamed(t *testing.T) {
	s := New(Max, symbolize.Options{})
	defer s.Close()
	var file *unwind.File
	s.Locate = func(pid uint32, f *unwind.Frame) {
		if file != nil && f.Address == 0x7010 {
			f.File, f.Address, f.JIT = file, 0x10, false
		}
	}
	add := func(id uint64, pid uint32) {
		s.Add(unwind.Stack{ID: id, PID: pid, Frames: []unwind.Frame{{JIT: true, Address: 0x7010}, {Function: "main"}}}, 0)
	}
	isNamed := func(id uint64) bool {
		f := s.Stack(id)
		if len(f) != 2 {
			t.Fatalf("stack %d is %v", id, f)
		}
		return !f[0].Mark && f[0].Mapping != nil && f[0].Mapping.Path == "/lib/libcuda.so.1"
	}
	add(1, 7)
	add(2, 8)
	add(3, 7)
	if isNamed(1) || isNamed(2) { // both are read, as by a report
		t.Error("stacks of an unknown library are named")
	}
	s.Ended(8) // the next process with that pid has other mappings
	file = &unwind.File{ID: "1", Path: "/lib/libcuda.so.1"}
	s.Place(7)
	s.Place(8)
	if !isNamed(1) || !isNamed(3) || isNamed(2) {
		t.Errorf("named: %v, %v; of a process that has ended: %v", isNamed(1), isNamed(3), isNamed(2))
	}
	add(4, 7) // it became known between the walk and now
	if !isNamed(4) || len(s.Unplaced()) != 0 {
		t.Errorf("of a known library: named %v, %v wait", isNamed(4), s.Unplaced())
	}
}

func TestStacksBeyondTheLimitHaveNoFrames(t *testing.T) {
	s := New(40, symbolize.Options{})
	defer s.Close()
	for i := range uint64(13) {
		s.Add(unwind.Stack{ID: i, PID: 7, Frames: []unwind.Frame{{Function: fmt.Sprint("f", i)}}}, 0)
	}
	s.Add(unwind.Stack{ID: 3, Frames: []unwind.Frame{{Function: "again"}}}, 0) // sent again, it has its place
	if f := s.Stack(3); len(f) != 1 || f[0].Function != "again" {
		t.Errorf("a stack that was sent again is %v", f)
	}
	if f := s.Stack(11); len(f) != 0 {
		t.Errorf("a stack beyond the limit is %v", f)
	}
	if w := s.Warnings(); len(w) != 1 || w[0] != "process 7 has too many different stacks: 3 beyond its first 10 have no frames" {
		t.Errorf("warnings %q", w)
	}
}

func TestOneProcessDoesNotTakeThePlacesOfOthersStacks(t *testing.T) {
	s := New(12, symbolize.Options{})
	defer s.Close()
	frames := []unwind.Frame{{Function: "f"}}
	for i := range uint64(100) {
		s.Add(unwind.Stack{ID: 1000 + i, PID: 7, Frames: frames}, 0)
	}
	for i := range uint64(3) {
		s.Add(unwind.Stack{ID: i, PID: 8, Frames: frames}, 0)
		if len(s.Stack(i)) != 1 {
			t.Errorf("stack %d of another process has no frames", i)
		}
	}
	if w := s.Warnings(); len(w) != 1 || w[0] != "process 7 has too many different stacks: 97 beyond its first 3 have no frames" {
		t.Errorf("warnings %q", w)
	}
}

func TestOneUserDoesNotTakeThePlacesOfOthersStacks(t *testing.T) {
	s := New(1<<10, symbolize.Options{})
	defer s.Close()
	frames := []unwind.Frame{{Function: "f"}}
	for i := range uint64(1 << 12) {
		s.Add(unwind.Stack{ID: 1000 + i, PID: uint32(100 + i%200), Frames: frames}, 1)
	}
	for i := range uint64(16) {
		s.Add(unwind.Stack{ID: i, PID: 8, Frames: frames}, 2)
		if len(s.Stack(i)) != 1 {
			t.Errorf("stack %d of another user has no frames", i)
		}
	}
	lost := s.Lost()
	if _, ok := lost[8]; ok || len(lost) != 200 {
		t.Errorf("%d processes are named, the other user's among them: %v", len(lost), ok)
	}
}
