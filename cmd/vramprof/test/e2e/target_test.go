// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// target is a program under test. Its lines are read one by one; next continues it at a "wait".
type target struct {
	*exec.Cmd
	t     *testing.T
	out   *bufio.Reader
	stdin io.WriteCloser
}

// startTarget starts a program, which is killed when the test ends.
func startTarget(t *testing.T, env []string, program string, args ...string) *target {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = env
	return startCommand(t, cmd)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *target {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &target{cmd, t, bufio.NewReader(out), stdin}
}

func (p *target) pid() int { return p.Process.Pid }

func (p *target) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s printed %q, then %v", p.Path, line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *target) expect(line string) {
	p.t.Helper()
	if got := p.line(); got != line {
		p.t.Fatalf("%s printed %q, want %q", p.Path, got, line)
	}
}

func (p *target) expectReady() { p.t.Helper(); p.expect(fmt.Sprint("ready ", p.pid())) }

// until returns the lines before the given one.
func (p *target) until(last string) []string {
	p.t.Helper()
	var lines []string
	for {
		line := p.line()
		if line == last {
			return lines
		}
		lines = append(lines, line)
	}
}

func (p *target) next() { fmt.Fprintln(p.stdin) }

// end continues the program at its last wait, and checks that it ends without an error.
func (p *target) end() {
	p.t.Helper()
	p.next()
	if err := p.Wait(); err != nil {
		p.t.Errorf("%s: %v", p.Path, err)
	}
}

// writeFile writes a file into a folder of the test.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// copyFile makes a copy with a new inode.
func copyFile(t *testing.T, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	// A child of another test that has not called execve yet would hold the file open for writing,
	// and running it would fail.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// slowness is the factor by which everything may be slower than on a real processor:
// VRAMPROF_TEST_SLOWNESS, by default 1.
var slowness = func() time.Duration {
	n, _ := strconv.Atoi(os.Getenv("VRAMPROF_TEST_SLOWNESS"))
	return time.Duration(max(n, 1))
}()

// eventually waits until a condition holds, at most the given time.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	limit *= slowness
	for end := time.Now().Add(limit); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stateOf returns the state letter in /proc/PID/stat, or 0 for an exited process.
func stateOf(pid int) byte { return stateIn(fmt.Sprintf("/proc/%d/stat", pid)) }

func stateIn(path string) byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return after[0]
}

// privateLibraries copies the libraries into a folder of the test, so that no other test's probes
// are in them.
func privateLibraries(t *testing.T, from fakecuda.Dir) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1"} {
		copyFile(t, from.Lib(name), filepath.Join(dir, name))
	}
	return dir
}
