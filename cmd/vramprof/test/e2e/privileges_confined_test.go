// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setFilter installs a seccomp filter on this thread.
func setFilter(program []unix.SockFilter) error {
	runtime.LockOSThread() // this thread becomes the new program
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0)
}

// status holds a thread's privileges from /proc/PID/task/TID/status.
type status struct{ inheritable, permitted, effective, bounding, ambient, noNewPrivs, seccomp uint64 }

func parseStatus(t *testing.T, text string) (s status) {
	t.Helper()
	fields := map[string]*uint64{
		"CapInh": &s.inheritable, "CapPrm": &s.permitted, "CapEff": &s.effective, "CapBnd": &s.bounding, "CapAmb": &s.ambient,
		"NoNewPrivs": &s.noNewPrivs, "Seccomp": &s.seccomp,
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if field := fields[key]; field != nil {
			var err error
			if *field, err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
				t.Fatal(err)
			}
			delete(fields, key)
		}
	}
	if len(fields) > 0 {
		t.Fatalf("%d fields are missing in %q", len(fields), text)
	}
	return s
}

// checkConfined checks every thread of a process.
func checkConfined(t *testing.T, pid int, capabilities ...int) {
	t.Helper()
	want := status{noNewPrivs: 1, seccomp: 2}
	for _, c := range capabilities {
		want.permitted |= 1 << c
	}
	want.effective = want.permitted
	// On a very busy machine, a thread may be confined late.
	eventually(t, 20*time.Second, fmt.Sprintf("every thread of %d has %+x", pid, want), func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) < 2 {
			t.Fatalf("threads %v, %v", threads, err)
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it has exited
			}
			if got := parseStatus(t, string(text)); got != want {
				t.Logf("%s: %+x", path, got)
				return false
			}
		}
		return true
	})
}

// The capabilities that tracing still needs.
var tracing = []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK}

func TestConfinedTracerTracesLaterProcesses(t *testing.T) {
	dir := setup(t)
	needMulti(t)
	// Use a program and libraries that nothing has probed yet.
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
	name := fmt.Sprintf("later-%x.py", time.Now().UnixNano()&0xffffffff)
	s := startRecord(t, env, "-f", "pprof", "-f", "capture", "--name", name).ready()
	checkConfined(t, s.cmd.Process.Pid, tracing...)
	program := startTarget(t, env, "/usr/bin/python3", writeFile(t, name, loadLater))
	program.expectReady()
	program.next()
	program.expect("loaded")
	s.untilProbed("libcudart.so.12")
	s.untilProbed("libcuda.so.1")
	s.untilUnwound(program.pid())
	program.next()
	program.expect("done")
	checkConfined(t, s.cmd.Process.Pid, tracing...)
	p := s.stop().profile()
	program.end()
	checkPythonStacks(t, p)
	pythonBooks(p, name).compare(t, books{"cudaMalloc device <module>:13 allocate:11": {10, 1000, 10, 1000}})
}

// TestReadersAreConfined runs the commands that read a process, which has neither CUDA nor PyTorch,
// and looks at their privileges until they end.
func TestReadersAreConfined(t *testing.T) {
	env := setup(t).Env(t, 1, 8<<30)
	program := startCommand(t, exec.Command("python3", "-c", "print('ready', flush=True); input()"))
	program.expect("ready")
	pid := fmt.Sprint(program.pid())
	want := status{noNewPrivs: 1, seccomp: 2}
	for _, c := range []int{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH} {
		want.permitted |= 1 << c
	}
	want.effective = want.permitted
	for _, args := range [][]string{
		{"holders", "-p", pid}, {"snapshot", "-p", pid, "-o", filepath.Join(t.TempDir(), "s")}, {"explain", "-p", pid}, {"ps"}, {"check", "-p", pid},
	} {
		cmd := exec.Command(binary(t), args...)
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(3 * time.Minute); ; {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // also of a zombie
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "\nSeccomp:\t2\n") {
				if got := parseStatus(t, string(text)); got != want {
					t.Errorf("%s has %+x, want %+x", args[0], got, want)
				}
				break
			}
			if strings.Contains(string(text), "\nState:\tZ") || time.Now().After(end) {
				t.Errorf("%s ran unconfined: %s", args[0], text)
				break
			}
		}
		_ = cmd.Wait()
	}
}

// commandScript stores the privileges of a command, waits, and changes user and session, as sudo
// does.
const commandScript = `cat /proc/self/status >"$0.status"; cat "$0.wait"; exec setsid -w setpriv --reuid=1000 --regid=1000 --clear-groups "$@"`

func TestCommandIsNotConfined(t *testing.T) {
	dir := setup(t)
	needMulti(t)
	env := dir.Env(t, 1, 8<<30)
	if err := os.Chmod(machineOf(env), 0o666); err != nil {
		t.Fatal(err)
	}
	// A folder of another user, to which root writes at the end; its parent folders are accessible
	// to all.
	folder, err := os.MkdirTemp("", "vramprof-foreign-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	script := filepath.Join(folder, "script")
	if err := os.WriteFile(script, []byte(everyOperation), 0o644); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(folder, 0o755); err == nil {
		err = os.Chown(folder, ordinary, ordinary)
	}
	if err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(t.TempDir(), "said")
	if err := unix.Mkfifo(said+".wait", 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, env, "record", "-o", filepath.Join(folder, "p.pb.gz"), "--", "sh", "-c", commandScript, said, dir.Program("alloc_c"), script).ready()
	s.path = filepath.Join(folder, "p.pb.gz")
	checkConfined(t, s.cmd.Process.Pid, append(tracing[:len(tracing):len(tracing)], unix.CAP_KILL, unix.CAP_DAC_OVERRIDE)...)
	checkConfined(t, guardianOf(t, s.cmd.Process.Pid), unix.CAP_BPF, unix.CAP_KILL)
	if err := os.WriteFile(said+".wait", nil, 0); err != nil { // continues the command
		t.Fatal(err)
	}
	booksOf(t, s.wait().profile()).compare(t, everyOperationBooks("cuda:0"))

	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := os.ReadFile(said + ".status")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := parseStatus(t, string(commands)), parseStatus(t, string(own)); got != want {
		t.Errorf("the command has %+x, want all that this test has, %+x", got, want)
	}
}

// guardianOf waits until vramprof's second process is ready.
func guardianOf(t *testing.T, parent int) (pid int) {
	t.Helper()
	eventually(t, 20*time.Second, "the guardian is ready", func() bool {
		for _, pid = range descendants(parent) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if strings.HasSuffix(string(line), "\x00release-when-orphaned\x00") && strings.Contains(string(text), "\nSeccomp:\t2\n") {
				return true
			}
		}
		return false
	})
	return pid
}
