// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var long = flag.Bool("accuracy.long", os.Getenv("VRAMPROF_LONG") != "", "measure the quoted figures: more programs, more calls, all interpreters; some minutes")

var (
	root      string // of the repository
	binaryDir string
)

func TestMain(m *testing.M) {
	flag.Parse()
	_, self, _, _ := runtime.Caller(0)
	root = filepath.Join(filepath.Dir(self), "..", "..", "..", "..")
	var err error
	if binaryDir, err = os.MkdirTemp("", "vramprof-accuracy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaryDir)
	results.print()
	os.Exit(code)
}

// longer returns the value for CI or the one for the quoted figures.
func longer[T any](short, quoted T) T {
	if *long {
		return quoted
	}
	return short
}

// table collects the results and prints them as Markdown when all tests have ended.
type table struct {
	mu   sync.Mutex
	rows []string
}

var results table

// add adds a row: what was measured, on how much, and the result.
func (x *table) add(t *testing.T, what, of, found string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rows = append(x.rows, fmt.Sprintf("| %s | %s | %s |", what, of, found))
	t.Logf("%s: of %s: %s", what, of, found)
}

func (x *table) print() {
	if len(x.rows) > 0 && testing.Verbose() {
		fmt.Printf("\n| measured | of | found |\n|---|---|---|\n%s\n\n", strings.Join(x.rows, "\n"))
	}
}

// thousands formats 1234567 as "1,234,567".
func thousands[T int | int64 | uint64](n T) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// buildOnce builds the command, unless the environment variable VRAMPROF names an existing binary.
var buildOnce = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("VRAMPROF"); path != "" {
		return path, nil
	}
	path := filepath.Join(binaryDir, "vramprof")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/vramprof")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
}

// session is a running "vramprof record" that writes a capture.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	path   string
	output string // a file, since a command may outlive vramprof
	input  io.WriteCloser
	done   chan struct{}
	result error // of the command, valid once done is closed
}

func (s *session) text() string {
	text, _ := os.ReadFile(s.output)
	return string(text)
}

// record starts a session with these arguments. A command that it starts gets an input that ends
// with the session.
func record(t *testing.T, env []string, args ...string) *session {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatalf("build vramprof: %v", err)
	}
	dir := t.TempDir()
	s := &session{t: t, path: filepath.Join(dir, "run.vram"), output: filepath.Join(dir, "said"), done: make(chan struct{})}
	output, err := os.Create(s.output)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	s.cmd = exec.Command(path, append([]string{"record", "-v", "-o", s.path}, args...)...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = env, output, output
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.result = s.cmd.Wait() // and closes the input
		close(s.done)
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.input.Close()
		<-s.done
		if t.Failed() {
			t.Logf("vramprof said:\n%s", s.text())
		}
	})
	return s
}

// ready waits until the probes are attached.
func (s *session) ready() *session {
	s.t.Helper()
	return s.until("vramprof: tracing ")
}

// until waits until vramprof, or the command that it started, has printed words.
func (s *session) until(words string) *session {
	s.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(s.text(), words); {
		select {
		case <-s.done:
			s.t.Fatalf("vramprof ended early: %v", s.result)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %q within %v", words, patience)
		}
	}
	return s
}

const patience = 3 * time.Minute

// stop ends the session with SIGINT.
func (s *session) stop() *session {
	s.t.Helper()
	if err := s.cmd.Process.Signal(unix.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	return s.wait()
}

// wait waits until the session ends.
func (s *session) wait() *session {
	s.t.Helper()
	select {
	case <-s.done:
		if s.result != nil {
			s.t.Fatalf("vramprof: %v", s.result)
		}
	case <-time.After(2 * patience):
		s.t.Fatalf("vramprof did not end within %v", 2*patience)
	}
	return s
}
