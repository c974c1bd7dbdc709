// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
)

// running starts a process that lives until the test has ended, and returns its pid.
func running(t *testing.T) uint32 {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return uint32(c.Process.Pid)
}

// patchedIn imitates Code.Find: these processes have overwritten the file.
func patchedIn(pids ...uint32) func(*patches.Code, string, []libraries.Mapped) []patches.Patch {
	return func(_ *patches.Code, _ string, list []libraries.Mapped) (found []patches.Patch) {
		for _, pid := range pids {
			if slices.ContainsFunc(list, func(l libraries.Mapped) bool { return l.PID == pid }) {
				found = append(found, patches.Patch{PID: pid, Function: "cuMemAlloc_v2"})
			}
		}
		return found
	}
}

// of returns a mapping of a file in another process.
func of(l libraries.Mapped, pid uint32) libraries.Mapped {
	l.PID = pid
	return l
}

// Any user can overwrite a library in his own process. It must not take tracing away from others.
func TestAProcessThatOverwritesAFileTakesItsProbesFromNoOther(t *testing.T) {
	var x told
	s := x.files(false)
	a, b, c, late := running(t), running(t), running(t), running(t)
	l := mapped(t, a, cudaapi.Driver, "libcuda.so.1", "x")
	s.compare, s.compareProbed = patchedIn(b), patchedIn(b)
	s.Probe([]libraries.Mapped{l, of(l, b), of(l, c), of(l, 9)}) // 9 is not traced
	in := func(pids ...uint32) {
		t.Helper()
		slices.Sort(pids)
		if got := s.known[l.File].pids(); !slices.Equal(got, pids) || s.has(l.File) {
			t.Errorf("probed in %d, want %d; in all: %v", got, pids, s.has(l.File))
		}
		if used := s.apart.Used(); used != len(pids) {
			t.Errorf("%d places are taken for %d processes", used, len(pids))
		}
	}
	in(a, c)
	if len(x.warnings) != 1 || !strings.Contains(x.warnings[0], "not probed there, only in the other processes") {
		t.Errorf("told %q", x.warnings)
	}
	s.Probe([]libraries.Mapped{of(l, late)})
	in(a, c, late)
	if n := len(x.done); n != 3 {
		t.Errorf("attached %q, want once in each of three processes", x.done)
	}
	s.compare, s.compareProbed = patchedIn(b, c), patchedIn(b, c)
	s.Probe([]libraries.Mapped{of(l, c)}) // its code became writable
	in(a, late)
	s.Retire([]libraries.Mapped{l, of(l, b), of(l, c)}, nil) // late has ended
	in(a)
	s.Retire([]libraries.Mapped{l, of(l, late)}, nil) // b and c have ended
	in(a, late)
	s.Retire([]libraries.Mapped{of(l, running(t))}, nil) // all have ended but a new one
	if !s.has(l.File) || s.apart.Used() != 0 || x.done[len(x.done)-1] != "libcuda.so.1" {
		t.Errorf("probed in all: %v, attached %q; %d places are taken", s.has(l.File), x.done, s.apart.Used())
	}
}

func TestProbesAreTakenBackOnlyFromTheProcessThatOverwritesAFile(t *testing.T) {
	var x told
	s := x.files(false)
	a, b := running(t), running(t)
	l := mapped(t, a, cudaapi.Driver, "libcuda.so.1", "x")
	s.compare, s.compareProbed = patchedIn(), patchedIn()
	s.Probe([]libraries.Mapped{l, of(l, b)})
	s.compare, s.compareProbed = patchedIn(b), patchedIn(b)
	s.Probe([]libraries.Mapped{of(l, b)})
	if got := s.known[l.File].pids(); !slices.Equal(got, []uint32{a}) {
		t.Errorf("probed in %d, want %d", got, a)
	}
	if err := os.WriteFile(l.Path, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Review()
	if got := s.known[l.File].pids(); !slices.Equal(got, []uint32{a}) || len(x.done) != 3 {
		t.Errorf("after a change on disk probed in %d, want %d: %q", got, a, x.done)
	}
	s.Close()
	if s.apart.Used() != 0 {
		t.Error("places are taken after Close")
	}
}

// The kernel takes a lock of every process that maps the file.
func TestAFileIsProbedInNoProcessWhileOneStallsAComparison(t *testing.T) {
	var x told
	s := x.files(false)
	a, b := running(t), running(t)
	l := mapped(t, a, cudaapi.Driver, "libcuda.so.1", "x")
	s.compare = func(_ *patches.Code, _ string, list []libraries.Mapped) []patches.Patch {
		return []patches.Patch{{PID: b, Err: errors.New("it takes too long")}}
	}
	s.Probe([]libraries.Mapped{l, of(l, b)})
	if len(x.done) > 0 || len(x.warnings) != 1 || !strings.Contains(x.warnings[0], "is not probed in any process") {
		t.Errorf("attached %q, told %q", x.done, x.warnings)
	}
}

func TestProbesInSingleProcessesHaveShares(t *testing.T) {
	var x told
	s := x.files(false)
	s.options.Owner = func(pid uint32) uint32 { return pid / 10_000 }
	l := mapped(t, 1, cudaapi.Driver, "libcuda.so.1", "x")
	var all []libraries.Mapped
	for pid := uint32(10_000); pid < 10_000+2*maxApart; pid++ {
		all = append(all, of(l, pid))
	}
	s.compare, s.compareProbed = patchedIn(10_000), patchedIn(10_000)
	s.Probe(all)
	many := len(s.known[l.File].apart)
	s.Probe([]libraries.Mapped{of(l, 20_001)})
	if many == 0 || many >= maxApart || !slices.Contains(s.known[l.File].pids(), 20_001) {
		t.Errorf("%d of %d places are one user's; another user has one: %v", many, maxApart, slices.Contains(s.known[l.File].pids(), 20_001))
	}
}
