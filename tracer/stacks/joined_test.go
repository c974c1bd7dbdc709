// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/unwind"
)

func addStack(s *Store, id uint64, file string, functions ...string) {
	stack := unwind.Stack{ID: id, PID: 7}
	for _, f := range functions {
		stack.Frames = append(stack.Frames, unwind.Frame{Function: f, Source: file, File: &unwind.File{Path: file}})
	}
	s.Add(stack, 0)
}

func functionsOf(s *Store, id uint64) string {
	var names []string
	for _, f := range s.Stack(id) {
		names = append(names, f.Function)
	}
	return strings.Join(names, " ")
}

// A thread of NCCL's that a thread of NCCL's made: its stack goes on with those of both makers.
func TestTheStackOfAThreadGoesOnWithItsMakers(t *testing.T) {
	s := New(100, symbolize.Options{})
	addStack(s, 1, "libnccl.so.2", "cuMemAlloc", "service")
	addStack(s, 2, "libnccl.so.2", "pthread_create", "job")
	addStack(s, 3, "train.py", "pthread_create", "split", "main")
	var m Makers
	m.Add(s, 7, 0, 70, 71, 3)
	m.Add(s, 7, 0, 71, 72, 2)
	id := s.Join(7, 0, 1, m.Of(7, 72))
	if !s.Passes(id, func(file string) bool { return file == "train.py" }) || s.Passes(1, func(file string) bool { return file == "train.py" }) || !s.Whole(id) {
		t.Error("Passes and Whole do not look at all parts")
	}
	if got, want := functionsOf(s, id), "cuMemAlloc service [thread created by] pthread_create job [thread created by] pthread_create split main"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Join(7, 0, 1, m.Of(7, 72)) != id || s.Join(7, 0, 1, m.Of(7, 70)) != 1 || s.Join(7, 0, 0, 3) != 0 {
		t.Error("the id differs, or a thread without a maker has a joined stack")
	}
	if m.Of(8, 72) != 0 {
		t.Error("a thread of another process has its maker")
	}
	m.Forget(func(_, thread uint32) bool { return thread != 72 })
	if m.Of(7, 72) != 0 || m.Of(7, 71) == 0 || m.count != 1 {
		t.Errorf("threads that have ended: %v", m.by)
	}
	m.Ended(7)
	if m.Of(7, 71) != 0 || m.count != 0 {
		t.Error("the process has ended")
	}
}

// The id of a thread that has ended is given to another one in time.
func TestAThreadThatRunsOtherCodeHasNoMaker(t *testing.T) {
	s := New(100, symbolize.Options{})
	native := func(id uint64, files ...string) {
		stack := unwind.Stack{ID: id, PID: 7}
		for i, f := range files {
			stack.Frames = append(stack.Frames, unwind.Frame{File: &unwind.File{ID: f, Path: "/usr/lib/" + f}, Address: uint64(i)})
		}
		s.Add(stack, 0)
	}
	native(1, "libcuda.so.1", "libnccl.so.2", "libc.so.6")
	native(2, "libcuda.so.1", "libtorch.so", "libc.so.6")
	native(3, "libnccl.so.2", "python3")
	if n := len(s.Stack(s.Join(7, 0, 1, 3))); n != 6 {
		t.Errorf("a thread of NCCL's has %d frames, want its maker's too", n)
	}
	if n := len(s.Stack(s.Join(7, 0, 2, 3))); n != 3 {
		t.Errorf("another thread has %d frames, want its own", n)
	}
}

// What a joined stack consists of stays as long as it is in use, and goes with it.
func TestThePartsOfAJoinedStackStayWithIt(t *testing.T) {
	s := New(100, symbolize.Options{})
	addStack(s, 1, "a", "leaf")
	addStack(s, 2, "a", "maker")
	id := s.Join(7, 0, 1, 2)
	now := time.Now()
	for range 4 {
		now = now.Add(2 * Unused)
		s.Evict(now, map[uint64]struct{}{id: {}})
	}
	if got := functionsOf(s, id); got != "leaf [thread created by] maker" {
		t.Errorf("in use: %q", got)
	}
	for range 4 {
		now = now.Add(2 * Unused)
		s.Evict(now, map[uint64]struct{}{})
	}
	if s.Len() != 0 {
		t.Errorf("%d stacks are left", s.Len())
	}
}

// A process cannot make a stack of endless parts, nor one without room.
func TestJoinedStacksAreBounded(t *testing.T) {
	s := New(1000, symbolize.Options{})
	addStack(s, 1, "a", "f")
	id := uint64(1)
	for range 20 {
		id = s.Join(7, 0, 1, id)
	}
	if n := len(s.Stack(id)); n > 2*maxJoined+2 {
		t.Errorf("%d frames", n)
	}
	full := New(1, symbolize.Options{})
	addStack(full, 1, "a", "f")
	if got := full.Join(7, 0, 1, 2); got != 1 {
		t.Errorf("without room: %d", got)
	}
	var m Makers
	for thread := range uint32(2 * maxThreadsOfProcess) {
		m.Add(s, 7, 0, 1, thread+2, 1)
	}
	if m.count != maxThreadsOfProcess || len(m.by[7]) != m.count {
		t.Errorf("%d threads", m.count)
	}
}
