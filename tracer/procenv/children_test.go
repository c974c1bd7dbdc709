// SPDX-License-Identifier: Apache-2.0

package procenv

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// start runs a program with CUDA_VISIBLE_DEVICES=0 and waits for it to print "ready".
func start(t testing.TB, name string, args ...string) uint32 {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("reading other processes needs root")
	}
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"CUDA_VISIBLE_DEVICES=0", "PATH=" + os.Getenv("PATH"), "HOME=/"}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if line != "ready\n" {
		t.Skip(line)
	}
	return uint32(cmd.Process.Pid)
}

func build(t testing.TB, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	out := filepath.Join(t.TempDir(), "child")
	args := append([]string{"-pthread", "-o", out, filepath.Join("testdata", "child.c")}, flags...)
	if msg, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Skipf("gcc %s: %s", strings.Join(flags, " "), msg)
	}
	return out
}

// interpreters lists Python binaries of both kinds: /usr/bin/python3 may hold the copy of environ,
// others use the C library's.
func interpreters(t testing.TB) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.Command(name, "-c", "import os, sys; print(os.path.realpath(sys.executable), end='')").Output()
		if err == nil {
			found[string(out)] = true
		}
	}
	if len(found) == 0 {
		t.Skip("no python3")
	}
	return found
}

const script = `
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "7"
os.environ["RANK"] = "3"
print("ready", flush=True)
sys.stdin.read()
`

func check(t *testing.T, variables []string, name, want string) {
	t.Helper()
	if got, _ := Lookup(variables, name); got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

func TestVariablesSetByPythonAreRead(t *testing.T) {
	for name := range interpreters(t) {
		variables, err := Read(start(t, name, "-c", script))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		check(t, variables, "CUDA_VISIBLE_DEVICES", "7")
		check(t, variables, "RANK", "3")
		check(t, variables, "HOME", "/")
	}
}

func TestVariablesSetByAProgramAreRead(t *testing.T) {
	for _, flags := range [][]string{
		{"-pie", "-fPIE"},
		{"-no-pie", "-fno-pie"}, // the program contains a copy of environ
		{"-no-pie", "-fno-pie", "-Wl,--hash-style=both", "-s"},
	} {
		program := build(t, flags...)
		for _, mode := range []string{"set", "replace"} {
			variables, err := Read(start(t, program, mode))
			if err != nil {
				t.Errorf("%q %s: %v", flags, mode, err)
			}
			check(t, variables, "CUDA_VISIBLE_DEVICES", "7") // the first of two
			check(t, variables, "RANK", "3")
		}
	}
}

func TestUnreadableProgramsHaveTheirInitialEnvironment(t *testing.T) {
	dynamic := build(t)
	for _, c := range []struct {
		about, program, mode string
		want                 error
	}{
		{"static", build(t, "-static"), "set", errNoLibrary},
		{"cleared, or not begun", dynamic, "clear", errUnset},
		{"a pointer to nothing", dynamic, "wild", unix.EFAULT},
		{"memory that blocks", dynamic, "hole", deadline.ErrStuck},
	} {
		t.Run(c.about, func(t *testing.T) {
			pid := start(t, c.program, c.mode)
			begin := time.Now()
			variables, err := Read(pid)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			check(t, variables, "CUDA_VISIBLE_DEVICES", "0")
			// Others must not wait for it either.
			if stalls := slices.ContainsFunc(procfs.Stalls(), func(x procfs.Stall) bool { return x.PID == pid }); stalls != (c.want == deadline.ErrStuck) {
				t.Errorf("it is known to stall its readers: %v", stalls)
			}
		})
	}
}

func Test32BitProgramsHaveTheirInitialEnvironment(t *testing.T) {
	variables, err := Read(start(t, build(t, "-m32"), "set"))
	if err == nil {
		t.Error("no error")
	}
	check(t, variables, "CUDA_VISIBLE_DEVICES", "0")
}

func TestChangingEnvironmentIsReadConsistently(t *testing.T) {
	pid := start(t, build(t), "restless")
	live := 0
	for range 300 {
		variables, err := Read(pid)
		if err == nil {
			live++
			check(t, variables, "CUDA_VISIBLE_DEVICES", "7")
		}
		for _, v := range variables {
			if !strings.Contains(v, "=") {
				t.Errorf("got %q", v)
			}
		}
	}
	if live == 0 {
		t.Error("never read")
	}
	t.Logf("%d of 300 times live", live)
}

func TestExitedProcessHasNoEnvironment(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	if variables, err := Read(uint32(cmd.Process.Pid)); variables != nil || err == nil {
		t.Errorf("got %q, %v", variables, err)
	}
}

func BenchmarkPython(b *testing.B) {
	for name := range interpreters(b) {
		pid := start(b, name, "-c", script)
		b.Run(filepath.Base(filepath.Dir(filepath.Dir(name))), func(b *testing.B) {
			for b.Loop() {
				if _, err := Read(pid); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
