// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/unwind"
)

func used(ids ...uint64) map[uint64]struct{} {
	list := map[uint64]struct{}{}
	for _, id := range ids {
		list[id] = struct{}{}
	}
	return list
}

func stackOf(id uint64, pid uint32, function string) unwind.Stack {
	return unwind.Stack{ID: id, PID: pid, Frames: []unwind.Frame{{Function: function, Source: "train.py"}}}
}

// The kernel half sends a stack once. So first it forgets that it did, and the frames go later:
// what was on its way meanwhile still has its frames, and what comes after that is sent with them
// again.
func TestAStackGoesInTwoStepsAndComesBack(t *testing.T) {
	s := New(Max, symbolize.Options{})
	defer s.Close()
	for id := range uint64(4) {
		s.Add(stackOf(id, 7, fmt.Sprint("f", id)), 1)
	}
	at := time.Now()
	s.now = func() time.Time { return at.Add(time.Second) }
	pass := func() []Forgotten {
		at = at.Add(Unused)
		forget, _ := s.Evict(at, used(0, 1))
		return forget
	}
	if forget, dropped := s.Evict(at, used()); len(forget) != 0 || dropped != 0 {
		t.Errorf("new stacks are forgotten: %v, %d", forget, dropped)
	}
	forget := pass()
	slices.SortFunc(forget, func(a, b Forgotten) int { return int(a.ID) - int(b.ID) })
	if !slices.Equal(forget, []Forgotten{{2, 7}, {3, 7}}) || len(s.Stack(2)) != 1 {
		t.Fatalf("the first step: %v, and %v is left of a forgotten one", forget, s.Stack(2))
	}
	s.Add(stackOf(3, 7, "f3"), 1) // sent again
	if forget := pass(); s.Len() != 3 || len(s.Stack(2)) != 0 || len(s.Stack(3)) != 1 || len(forget) != 0 {
		t.Errorf("the second step: %d stacks are left, forget %v", s.Len(), forget)
	}
	s.Add(stackOf(2, 7, "f2"), 1)
	if f := s.Stack(2); len(f) != 1 || f[0].Function != "f2" {
		t.Errorf("the stack that came back is %v", f)
	}
	if held := s.places.Held(7); held != 4 || s.places.Used() != 4 {
		t.Errorf("the process holds %d places, %d in all", held, s.places.Used())
	}
}

// An event that was booked after the first step keeps its stack.
func TestAForgottenStackThatIsUsedAgainStays(t *testing.T) {
	s := New(Max, symbolize.Options{})
	defer s.Close()
	s.Add(stackOf(1, 7, "f"), 1)
	at := time.Now().Add(Unused)
	s.Evict(at, used())
	s.Evict(at.Add(Unused), used(1))
	s.Evict(at.Add(2*Unused-1), used())
	if len(s.Stack(1)) != 1 {
		t.Error("it went")
	}
}

// Places that a process does not use any more are free for its next stacks.
func TestEvictedStacksGiveTheirPlacesBack(t *testing.T) {
	s := New(40, symbolize.Options{})
	defer s.Close()
	for id := range uint64(12) {
		s.Add(stackOf(id, 7, "f"), 1)
	}
	if s.Len() != 10 || s.Lost()[7] != 2 {
		t.Fatalf("%d are kept, lost %v", s.Len(), s.Lost())
	}
	at := time.Now().Add(Unused)
	s.Evict(at, used())
	s.Evict(at.Add(Unused), used())
	s.Add(stackOf(100, 7, "f"), 1)
	if len(s.Stack(100)) != 1 || s.Len() != 1 {
		t.Error("there is no place for the next stack of the process")
	}
	s.ForgetProcesses(map[uint32]bool{7: true})
	if lost := s.Lost(); len(lost) != 0 || s.full != 2 {
		t.Errorf("of an ended process are named %v, and counted %d", lost, s.full)
	}
}

// A million processes with ten stacks each, a few of which run at a time, take as much memory as
// the first tenth of them did.
func TestTheMemoryOfStacksIsFlatWithTenMillionOfThem(t *testing.T) {
	processes := uint32(20_000)
	if os.Getenv("VRAMPROF_SOAK_SERVE") == "full" {
		processes = 1_000_000
	}
	const perProcess, atOnce, programs = 10, 500, 300
	s := New(Max, symbolize.Options{})
	defer s.Close()
	var first uint64
	at, sent := time.Now(), uint64(0)
	s.now = func() time.Time { return at }
	for pid := range processes {
		for i := range uint64(perProcess) {
			id := uint64(pid)*perProcess + i + 1
			frames := make([]unwind.Frame, 0, 8)
			for depth := range 8 {
				frames = append(frames, unwind.Frame{
					File: files[(int(pid)+depth)%len(files)], Address: uint64(pid%programs)<<20 | i<<8 | uint64(depth),
				})
			}
			s.Add(unwind.Stack{ID: id, PID: pid + 1, Frames: frames}, 1+pid%7)
			sent++
			if i%2 == 0 {
				s.Stack(id)
			}
		}
		if pid%atOnce != atOnce-1 {
			continue
		}
		at = at.Add(Unused) // those of the last thousand processes are in use
		list := make(map[uint64]struct{}, atOnce*perProcess)
		for id := sent - atOnce*perProcess + 1; id <= sent; id++ {
			list[id] = struct{}{}
		}
		s.Evict(at, list)
		s.ForgetFiles(func(string) bool { return false })
		if len(s.Lost()) != 0 {
			t.Fatal("stacks found no room")
		}
		if (pid+1)%(processes/10) == 0 && processes > 20_000 {
			t.Logf("%d processes, %d stacks: %d kept, heap %.1f MB", pid+1, sent, s.Len(), float64(heap())/1e6)
		}
		switch pid + 1 {
		case processes / 10:
			first = heap()
		case processes:
			t.Logf("%d stacks: heap %.1f MB after a tenth, %.1f MB at the end", sent, float64(first)/1e6, float64(heap())/1e6)
			if last := heap(); last > first+first/10 {
				t.Errorf("%d bytes after a tenth, %d at the end", first, last)
			}
		}
	}
	if n := s.Len(); n > 4*atOnce*perProcess {
		t.Errorf("%d stacks are left of %d", n, sent)
	}
	if len(s.mappings) > len(files) {
		t.Errorf("%d mappings are left", len(s.mappings))
	}
}

// heap returns the bytes of all that is reachable.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var files = func() (list []*unwind.File) {
	for i := range 50 {
		list = append(list, &unwind.File{ID: fmt.Sprint(i), Path: fmt.Sprintf("/lib/lib%d.so", i)})
	}
	return list
}()

// What names a stack still needs is not forgotten, and the mappings of what went are.
func TestFilesGoWithTheirLastStack(t *testing.T) {
	s := New(Max, symbolize.Options{})
	defer s.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files[:3] {
		f, err := os.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		s.symbols.AddFile(file.ID, &callstack.Mapping{Path: file.Path}, f, "")
	}
	for i, file := range files[:2] {
		s.Add(unwind.Stack{ID: uint64(i + 1), PID: 7, Frames: []unwind.Frame{{File: file, Address: 0x401000}}}, 1)
	}
	s.Stack(1)
	s.ForgetFiles(func(id string) bool { return false })
	if n := s.symbols.Stats().Files; n != 1 || len(s.mappings) != 1 {
		t.Errorf("%d files are open, want that of the stack without names; %d mappings, want that of the one with names", n, len(s.mappings))
	}
	at := time.Now().Add(Unused)
	s.Evict(at, used())
	s.Evict(at.Add(Unused), used())
	s.ForgetFiles(func(id string) bool { return false })
	if n := s.symbols.Stats().Files; n != 0 || len(s.mappings) != 0 || len(s.sharedRaw.known)+len(s.sharedNamed.known) != 0 {
		t.Errorf("%d files and %d mappings are left", n, len(s.mappings))
	}
}
