// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/stacks"
)

// evictAll has the worker drop all that may go, as if minutes had passed.
func (m *machine) evictAll() {
	m.t.Helper()
	for range 3 {
		m.eviction.later += stacks.Unused
		m.Forget(0)
		m.workDone()
	}
}

// TestAnEvictedStackComesBack: the kernel half sends a stack once, and remembers walks that it need
// not repeat. A program allocates again from a place whose stack nobody used for a while.
func TestAnEvictedStackComesBack(t *testing.T) {
	m := newMachine(t, 1)
	m.trace(nil)
	p := m.script("calls_c", nil, "ready", "wait", "repeat 3", "repeat 5", "cudaMalloc p 4K", "end", "print allocated", "wait", "end", "ready", "wait")
	p.ready()
	m.eventsRead() // and mappings
	m.workDone()   // the kernel half knows it: the same calls have the same stack from now on
	p.next()
	p.expect("allocated")
	depth := func(s *ledger.Snapshot) (id uint64, frames, sites int) {
		for _, x := range s.Sites {
			if s.Processes[x.Process].PID == p.pid() {
				id, frames = x.Stack, len(m.Stack(x.Stack))
				sites++
			}
		}
		return id, frames, sites
	}
	id, frames, sites := depth(m.snapshot())
	if sites != 1 || frames < 4 {
		t.Fatalf("%d sites, the stack has %d frames", sites, frames)
	}
	calls := map[uint64]bool{}
	if !m.eviction.stacksOfCalls(func(id uint64) { calls[id] = true }) || !calls[id] {
		t.Errorf("the latest call of its thread is not among %d", len(calls))
	}
	at := time.Now()
	for range 2 {
		at = at.Add(stacks.Unused)
		m.eviction.dropStacks(at, nil) // as if the books had lost it
	}
	if n := len(m.Stack(id)); n != 0 {
		t.Fatalf("%d frames are left", n)
	}
	for round := range 2 {
		p.next()
		p.expect("allocated")
		m.eventually("the stack is sent again", func() bool { return len(m.Stack(id)) == frames })
		if _, again, sites := depth(m.snapshot()); again != frames || sites != 1 {
			t.Errorf("round %d: %d sites, %d frames, want %d", round, sites, again, frames)
		}
	}
	p.next()
	p.ready()
	m.evictAll()
	if n := len(m.Stack(id)); n != frames {
		t.Errorf("%d frames are left of a stack that the books have", n)
	}
	p.end()
}

// TestWhatShortProcessesLeaveIsEvicted: each with libraries of its own, as containers have.
func TestWhatShortProcessesLeaveIsEvicted(t *testing.T) {
	m := newMachine(t, 1)
	m.trace(nil)
	m.evictAll()
	var before sizes
	for round := range 2 {
		var programs []*program
		for i := range 4 {
			folder := filepath.Join(m.folder, fmt.Sprintf("libraries %d %d", round, i/2))
			m.copyLibraries(folder)
			programs = append(programs, m.script("calls_c", []string{"LD_LIBRARY_PATH=" + folder}, "ready", "wait", "cudaMalloc p 1K", "ready", "wait"))
			programs[i].ready()
		}
		m.eventsRead() // and the mappings too
		m.workDone()   // the libraries are probed
		for _, p := range programs {
			p.next()
			p.ready()
		}
		m.snapshot()
		full := ownSizes(m.Sizes())
		for _, p := range programs {
			p.end()
		}
		m.eventsRead()
		var after sizes
		// Of processes that other tests run, some is kept for a moment.
		m.eventually("the round leaves nothing", func() bool {
			m.eviction.later += stacks.Unused
			m.eviction.dropStacks(time.Now().Add(m.eviction.later), nil) // as if they had left the books
			m.evictAll()
			after = ownSizes(m.Sizes())
			return after.stacks == 0 && (round == 0 || after == before)
		})
		t.Logf("round %d: %+v, after it %+v", round, full, after)
		if before = after; full.stacks == 0 || full.files <= after.files || full.layouts <= after.layouts || full.mappings <= after.mappings {
			t.Errorf("round %d has %+v, and leaves %+v", round, full, after)
		}
	}
}

// sizes are those of Sizes that traced processes alone make. Unwind tables stay for a minute, and
// kernel maps of a fixed size keep what is not touched again.
type sizes struct{ stacks, files, layouts, mappings int }

func ownSizes(s Sizes) sizes { return sizes{s.Stacks, s.Files, s.Layouts, s.KernelMappings} }

// copyLibraries copies those of the fake CUDA into a folder that does not exist yet.
func (m *machine) copyLibraries(folder string) {
	m.t.Helper()
	if _, err := os.Stat(folder); err == nil {
		return
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		m.t.Fatal(err)
	}
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
		text, err := os.ReadFile(m.fake.Driver(name))
		if err == nil { // what is behind the end makes it another file
			err = os.WriteFile(filepath.Join(folder, name), append(text, folder...), 0o755)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}
