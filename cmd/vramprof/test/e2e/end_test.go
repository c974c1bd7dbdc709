// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

func TestProfileOfKilledProgramIsComplete(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	script := "ready\nwait\nmalloc a 1000\nmalloc b 2000\nfree a\nrepeat 1000\nmalloc c 10\nend\nkill\n"
	folder := t.TempDir()
	program := copyFile(t, dir.Program("alloc_c"), filepath.Join(folder, "alloc_c"))
	target := startTarget(t, env, program, writeFile(t, "script", script))
	target.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	if err := os.RemoveAll(folder); err != nil { // so names cannot be looked up by path either
		t.Fatal(err)
	}
	target.next()
	p := s.wait().profile() // ends with the target
	if err := target.Wait(); err == nil {
		t.Error("the program was not killed")
	}
	booksOf(t, p).compare(t, books{
		key("cudaMalloc", "device", "cuda:0", "main", "malloc"):            {2, 3000, 1, 2000},
		key("cudaMalloc", "device", "cuda:0", "main run_script", "malloc"): {1000, 10000, 1000, 10000},
	})
}

// The kernel half wakes vramprof for each new stack, and vramprof reads the names of its Python
// frames while the program lives. On a busy machine that takes a while: a program that is killed
// meanwhile has marked frames, but no byte is missing.
func TestProfileOfKilledPythonProgramIsComplete(t *testing.T) {
	dir := setup(t)
	for _, lives := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second} {
		p, want := killedPython(t, dir, lives)
		if got := pythonBooks(p, "leak.py"); got.total() != want.total() {
			t.Errorf("the profile has %v, want %v", got.total(), want.total())
		}
		if lives < 10*time.Second && slices.ContainsFunc(p.Function, func(f *profile.Function) bool { return strings.HasSuffix(f.Name, notRead) }) {
			t.Logf("killed after %v: frames are marked", lives)
			continue
		}
		pythonBooks(p, "leak.py").compare(t, want)
		checkPythonStacks(t, p)
		return
	}
}

// notRead ends the name of a frame whose code object was gone when vramprof read it.
const notRead = "a Python frame could not be read]"

// killedPython returns the profile of a program that is killed so long after its last allocation,
// and the program's own account.
func killedPython(t *testing.T, dir fakecuda.Dir, lives time.Duration) (p *profile.Profile, want books) {
	t.Helper()
	env := dir.Env(t, 1, 8<<30)
	folder := t.TempDir()
	program := copyFile(t, dir.Program("leak.py"), filepath.Join(folder, "leak.py"))
	target := startTarget(t, env, "/usr/bin/python3", program, "--stdin", "--threads", "2")
	target.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	target.next()
	want = parseCalls(t, target.until("done"))
	os.RemoveAll(folder)
	time.Sleep(lives)
	target.Process.Kill()
	return s.wait().profile(), want
}

func TestProfileOfExitedProgramIsComplete(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "free0\nready\nwait\n"+everyOperation))
	target.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	target.end()
	booksOf(t, s.wait().profile()).compare(t, everyOperationBooks("cuda:0"))
	r := l.wait().leaks()
	checkNoLosses(t, r)
	if len(r.Processes) != 1 || !r.Processes[0].Ended {
		t.Errorf("processes %+v, want one that has ended", r.Processes)
	}
}

// probed compares the code of a process's libraries with their files: a uprobe is a breakpoint
// instruction in the process's own copy of a page.
func probed(t *testing.T, pid int, names ...string) (changed int) {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for _, m := range executableMappings(t, pid, names...) {
		code := make([]byte, m.end-m.start)
		if _, err := memory.ReadAt(code, int64(m.start)); err != nil {
			t.Fatalf("read the code of process %d: %v", pid, err)
		}
		file, err := os.Open(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.start, m.end))
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, len(code))
		n, _ := file.ReadAt(text, int64(m.offset))
		file.Close()
		for i := range n {
			if code[i] != text[i] {
				changed++
			}
		}
	}
	return changed
}

func TestKilledTracerLeavesNoProbes(t *testing.T) {
	dir := setup(t)
	libraries := []string{"libcuda.so.1", "libcudart.so.12"}
	for _, end := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
			target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "free0\nready\nwait\nrepeat 1000\nmalloc a 10\nfree a\nend\nprint done\nwait\n"))
			target.expectReady()
			if n := probed(t, target.pid(), libraries...); n != 0 {
				t.Fatalf("%d bytes of code differ before the attach", n)
			}
			s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
			if n := probed(t, target.pid(), libraries...); n < 13 {
				t.Errorf("%d bytes of code differ while attached, want one for each function", n)
			}
			if err := s.cmd.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			<-s.done
			eventually(t, 90*time.Second, "the probes are gone", func() bool { return probed(t, target.pid(), libraries...) == 0 })
			target.next()
			target.expect("done")
			target.end()
		})
	}
}

// A process started by vramprof is held whenever it has loaded libraries. The test freezes vramprof
// until that happens, and then kills it.
func killedWhileHeld(t *testing.T, shell string) {
	t.Helper()
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	out := writeFile(t, "out", "")
	script := writeFile(t, "script", "malloc a 10\nfree a\nprint done\n")
	s := startRecord(t, env, "--", "sh", "-c", `cat; exec >"$0"; `+shell, out, dir.Program("alloc_c"), script)
	s.freezeUntilHeld()
	s.cmd.Process.Kill()
	eventually(t, 10*time.Second, "the command ends on its own", func() bool {
		text, _ := os.ReadFile(out)
		return string(text) == "done\n"
	})
}

func TestKilledTracerReleasesItsCommand(t *testing.T) { killedWhileHeld(t, `exec "$@"`) }

func TestKilledTracerReleasesChildrenOfItsCommand(t *testing.T) { killedWhileHeld(t, `"$@"; true`) }

// freezeUntilHeld stops vramprof while it holds a descendant named alloc_c.
func (s *session) freezeUntilHeld() {
	s.t.Helper()
	s.ready()
	pid := s.cmd.Process.Pid
	eventually(s.t, 20*time.Second, "the command is held", func() bool {
		_ = unix.Kill(pid, unix.SIGSTOP)
		time.Sleep(50 * time.Millisecond)
		for _, child := range descendants(pid) {
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); string(comm) == "alloc_c\n" && stateOf(child) == 'T' {
				s.t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
				return true
			}
		}
		_ = unix.Kill(pid, unix.SIGCONT)
		return false
	})
}
