// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

func TestRenamedLibraryOfAWheelIsTraced(t *testing.T) {
	dir := setup(t)
	const name = "libcudart-80664282.so.10.2"
	wheel := copyFile(t, dir.Lib("wheel/"+name), filepath.Join(t.TempDir(), "venv", "lib", "nvidia", name))
	env := append(dir.Env(t, 1, 8<<30), "CUDART="+wheel)
	program := startTarget(t, env, "/usr/bin/python3", dir.Program("leak.py"), "--stdin")
	tracePython(t, env, program)
}

func TestLibrariesDeletedBeforeTheAttachAreTraced(t *testing.T) {
	dir := setup(t)
	folder := privateLibraries(t, dir)
	env := dir.Env(t, 1, 8<<30)
	own := append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+folder)
	program := startTarget(t, own, "/usr/bin/python3", dir.Program("leak.py"), "--stdin")
	eventually(t, 10*time.Second, "the program has loaded the driver", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", program.pid()))
		return strings.Contains(string(text), folder+"/libcuda.so.1")
	})
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	tracePython(t, env, program)
}

// loadLater loads the runtime at the first line, and allocates at the second.
const loadLater = `
import ctypes, os, sys
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
cudart = ctypes.CDLL("libcudart.so.12")
assert cudart.cudaFree(None) == 0
print("loaded", flush=True)
sys.stdin.readline()
def allocate(size):
    p = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)) == 0
for i in range(10):
    allocate(100)
print("done", flush=True)
sys.stdin.readline()
`

func TestLibrariesLoadedAfterTheAttachAreTraced(t *testing.T) {
	dir := setup(t)
	// Use libraries that nothing has probed yet.
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
	name := fmt.Sprintf("later-%x.py", time.Now().UnixNano()&0xffffffff)
	program := startTarget(t, env, "/usr/bin/python3", writeFile(t, name, loadLater))
	program.expectReady()
	l := startLeaks(t, env, "--name", name).ready()
	s := startRecord(t, env, "--name", name).ready()
	program.next()
	program.expect("loaded")
	l.untilProbed("libcudart.so.12")
	l.untilProbed("libcuda.so.1")
	s.untilProbed("libcudart.so.12")
	s.untilProbed("libcuda.so.1")
	l.untilUnwound(program.pid())
	s.untilUnwound(program.pid())
	program.next()
	program.expect("done")
	r, p := l.stop().leaks(), s.stop().profile()
	program.end()
	checkNoLosses(t, r)
	if r.LiveCount != 10 || r.LiveBytes != 1000 {
		t.Errorf("live %d bytes in %d, want 1000 in 10", r.LiveBytes, r.LiveCount)
	}
	checkPythonStacks(t, p)
	pythonBooks(p, name).compare(t, books{"cudaMalloc device <module>:13 allocate:11": {10, 1000, 10, 1000}})
}

// untilUnwound waits until the session can unwind the stacks of a process: vramprof attaches probes
// before that if it takes long.
func (s *session) untilUnwound(pid int) {
	s.t.Helper()
	eventually(s.t, 90*time.Second, "the unwind tables are loaded", func() bool {
		return strings.Contains(s.stderr.String(), fmt.Sprintf("read the unwind tables of process %d\n", pid))
	})
}

// untilUnwoundAgain waits until the session has noticed that a process has mapped code since.
func (s *session) untilUnwoundAgain(pid int) {
	s.t.Helper()
	eventually(s.t, 90*time.Second, "the new code is noticed", func() bool {
		return strings.Contains(s.stderr.String(), fmt.Sprintf("read the unwind tables of process %d again", pid))
	})
}

// untilProbed waits until the session has probed a library.
func (s *session) untilProbed(library string) {
	s.t.Helper()
	eventually(s.t, 90*time.Second, library+" is probed", func() bool {
		return strings.Contains(s.stderr.String(), " functions of "+library+"\n")
	})
}

// containerScript allocates in a process that vramprof attached to.
const containerScript = "free0\nready\nwait\nmalloc a 1000\nmalloc b 2000\nfree a\nprint done\nwait\n"

func containerBooks() books {
	return books{key("cudaMalloc", "device", "cuda:0", "main", "malloc"): {2, 3000, 1, 2000}}
}

// fill copies a program, its script and all libraries into a folder that can be its root file
// system.
func fill(t *testing.T, dir fakecuda.Dir, folder string) {
	t.Helper()
	copyFile(t, dir.Program("alloc_c"), filepath.Join(folder, "bin", "alloc_c"))
	copyFile(t, writeFile(t, "script", containerScript), filepath.Join(folder, "script"))
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
		copyFile(t, dir.Lib(name), filepath.Join(folder, "cuda", name))
	}
	out, err := exec.Command("ldd", dir.Program("alloc_c")).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/lib") {
			copyFile(t, word, filepath.Join(folder, word))
		}
	}
}

func TestProgramInContainerIsTraced(t *testing.T) {
	dir := setup(t)
	folder := t.TempDir()
	fill(t, dir, folder)
	env := dir.Env(t, 1, 8<<30)
	machine := copyFile(t, "/dev/null", filepath.Join(folder, "machine"))
	env = append(env, "FAKECUDA_SHM="+machine)
	cmd := exec.Command("/bin/alloc_c", "/script")
	cmd.Env = append(env[:len(env):len(env)], "LD_LIBRARY_PATH=/cuda", "FAKECUDA_SHM=/machine")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: folder, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	cmd.Dir = "/"
	program := startCommand(t, cmd)
	program.expect("ready 1")
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	l := startLeaks(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	p, r := s.stop().profile(), l.stop().leaks()
	program.end()
	booksOf(t, p).compare(t, containerBooks())
	checkNoLosses(t, r)
	if b := balance(t, r); b.LiveBytes != 2000 || b.BaselineBytes != 300*mib {
		t.Errorf("balance %+v, want 2000 bytes live on a context", b)
	}
}

// inOverlay mounts an overlay of the folder "lower" below $1, visible only to this process, and
// executes the program in it.
const inOverlay = `
cd "$1" && mount -t tmpfs none own && mkdir own/upper own/work own/merged &&
mount -t overlay overlay -o lowerdir="$1/lower",upperdir="$1/own/upper",workdir="$1/own/work" own/merged || exit 77
LD_LIBRARY_PATH=$1/own/merged/cuda exec own/merged/bin/alloc_c own/merged/script
`

// startInOverlay skips the test if no overlay can be mounted.
func startInOverlay(t *testing.T, env []string, folder string) *target {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "sh", "-c", inOverlay, "sh", folder)
	cmd.Env = env
	program := startCommand(t, cmd)
	line, err := program.out.ReadString('\n')
	if err != nil {
		if program.Wait(); program.ProcessState.ExitCode() == 77 {
			t.Skip("cannot mount an overlay")
		}
		t.Fatalf("the program in the overlay: %v", program.ProcessState)
	}
	if want := fmt.Sprintf("ready %d\n", program.pid()); line != want {
		t.Fatalf("the program in the overlay printed %q, want %q", line, want)
	}
	return program
}

func TestProgramsOfTwoOverlaysAreEachCountedOnce(t *testing.T) {
	dir := setup(t)
	folder := t.TempDir()
	fill(t, dir, filepath.Join(folder, "lower"))
	if err := os.Mkdir(filepath.Join(folder, "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := dir.Env(t, 1, 8<<30)
	one, two := startInOverlay(t, env, folder), startInOverlay(t, env, folder)
	both := []string{"-p", fmt.Sprint(one.pid()), "-p", fmt.Sprint(two.pid())}
	s := startRecord(t, env, both...).ready()
	l := startLeaks(t, env, both...).ready()
	for _, program := range []*target{one, two} {
		program.next()
		program.expect("done")
	}
	p, r := s.stop().profile(), l.stop().leaks()
	one.end()
	two.end()
	checkNoLosses(t, r)
	byPID := map[int64]books{int64(one.pid()): {}, int64(two.pid()): {}}
	for _, x := range p.Sample {
		pid := x.NumLabel["pid"][0]
		if byPID[pid] == nil {
			t.Fatalf("a sample of process %d", pid)
		}
		stack := strings.Join(append([]string{label(x, "api"), label(x, "kind"), label(x, "device")}, trim(rootFirst(x))...), " ")
		byPID[pid].add(stack, values(x.Value))
	}
	for _, own := range byPID {
		own.compare(t, containerBooks())
	}
}
