// SPDX-License-Identifier: Apache-2.0

// Package pythontest runs programs in Python for tests that read their memory.
package pythontest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"golang.org/x/sys/unix"
)

var (
	versionName = regexp.MustCompile(`^python3\.(\d+)$`)
	supported   = []string{"8", "9", "10", "11", "12", "13", "14"}
)

// Program returns one of them, or skips the test.
func Program(t *testing.T) string {
	t.Helper()
	programs := Programs(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	return programs[0]
}

// Programs returns the programs to test, of all versions that the machine has: those in PATH,
// pyenv's and those that scripts/fetch-python.sh has unpacked.
func Programs(t *testing.T) (programs []string) {
	t.Helper()
	repository := repository(t)
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{
		"/usr/bin/python3.[0-9]*", home + "/.pyenv/versions/3.*/bin/python3.[0-9]*", repository + "/.cache/python-3.1*/python3.1?",
	} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			if m := versionName.FindStringSubmatch(filepath.Base(f)); m != nil && slices.Contains(supported, m[1]) {
				programs = append(programs, f)
			}
		}
	}
	return programs
}

// AwaitInput waits until a thread of a job that has printed its line waits for input, at most for
// some seconds: a job that trains does not wait.
func AwaitInput(pid int) {
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		for _, name := range threads {
			if text, _ := os.ReadFile(name); strings.HasPrefix(string(text), fmt.Sprintf("%d 0x0 ", unix.SYS_READ)) {
				return
			}
		}
	}
}

// Start runs a job that prints "ready" and waits for its input to end.
func Start(t testing.TB, cmd *exec.Cmd) *peek.Process {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n')
	for i := 0; i < 20 && strings.HasPrefix(line, "["); i++ { // messages of gloo
		line, _ = lines.ReadString('\n')
	}
	if !strings.HasPrefix(line, "ready") {
		t.Fatalf("the job printed %q\n%s", line, complaints.String())
	}
	AwaitInput(cmd.Process.Pid)
	p, err := peek.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// repository returns the folder of the module, above that of the test.
func repository(t *testing.T) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(".")
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	for folder != "/" {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		folder = filepath.Dir(folder)
	}
	t.Fatal("no go.mod above the test")
	return ""
}
