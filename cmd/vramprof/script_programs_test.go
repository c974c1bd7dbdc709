// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// scriptPatience is how long a script waits for an expected event.
const scriptPatience = 2 * time.Minute

type programsKey struct{}

// programs are the programs that a script started in the background.
type programs struct {
	t       testscript.T
	names   []string // of environment variables
	running map[string]*testProgram
}

type testProgram struct {
	cmd            *exec.Cmd
	stdout, stderr stream
	both           stream // the text that await searches
	seen           int    // bytes of both that an await has passed
	ended          chan struct{}
}

// stream can be read while it is written.
type stream struct {
	mu   sync.Mutex
	text []byte
	also *stream
}

func (s *stream) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, text...)
	if s.also != nil {
		_, _ = s.also.Write(text)
	}
	return len(text), nil
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// killAll kills the programs and what they started, such as the command of vramprof record.
func (p *programs) killAll() {
	for _, x := range p.running {
		_ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL)
		<-x.ended
	}
}

func programOf(ts *testscript.TestScript, name string) *testProgram {
	x := ts.Value(programsKey{}).(*programs).running[name]
	if x == nil {
		ts.Fatalf("no program %q was started", name)
	}
	return x
}

// start NAME PROGRAM [ARGUMENTS]: starts a program in the background, in a process group of its
// own; $NAME is its pid.
func start(ts *testscript.TestScript, neg bool, args []string) {
	x := &testProgram{ended: make(chan struct{})}
	x.stdout.also, x.stderr.also = &x.both, &x.both
	launch(ts, neg, args, x, &x.stdout)
}

// stuck NAME PROGRAM [ARGUMENTS]: like start, but what the program writes to
// stdout is never read.
func stuck(ts *testscript.TestScript, neg bool, args []string) {
	x := &testProgram{ended: make(chan struct{})}
	x.stderr.also = &x.both
	read, write, err := os.Pipe()
	ts.Check(err)
	ts.Defer(func() { read.Close() })
	defer write.Close()
	size, err := unix.FcntlInt(write.Fd(), unix.F_GETPIPE_SZ, 0)
	ts.Check(err)
	_, err = write.Write(make([]byte, size))
	ts.Check(err)
	launch(ts, neg, args, x, write)
}

func launch(ts *testscript.TestScript, neg bool, args []string, x *testProgram, stdout io.Writer) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start|stuck NAME PROGRAM [ARGUMENTS]")
	}
	p := ts.Value(programsKey{}).(*programs)
	path, err := lookPath(ts, args[1])
	ts.Check(err)
	x.cmd = exec.Command(path, args[2:]...)
	for _, name := range p.names {
		if value := ts.Getenv(name); value != "" {
			x.cmd.Env = append(x.cmd.Env, name+"="+value)
		}
	}
	p.run(ts, args[0], x, stdout)
}

// run starts the command of a program in the background.
func (p *programs) run(ts *testscript.TestScript, name string, x *testProgram, stdout io.Writer) {
	x.cmd.Dir = ts.MkAbs(".")
	x.cmd.Stdout, x.cmd.Stderr = stdout, &x.stderr
	x.cmd.WaitDelay = 2 * time.Second // for its children
	x.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	ts.Check(x.cmd.Start())
	go func() { _ = x.cmd.Wait(); close(x.ended) }()
	p.running[name] = x
	ts.Setenv(name, strconv.Itoa(x.cmd.Process.Pid))
}

// torch NAME SCRIPT [ARGUMENTS]: like start, of a job of testdata/realtorch that waits for lines of
// its standard input at its points. It skips the script where the real PyTorch is missing.
func torch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: torch NAME SCRIPT [ARGUMENTS]")
	}
	p := ts.Value(programsKey{}).(*programs)
	t := p.t.(testing.TB)
	root := realtorch.Prepare(t)
	x := &testProgram{ended: make(chan struct{})}
	x.stdout.also, x.stderr.also = &x.both, &x.both
	x.cmd = root.Command(root.Env(t, 2, 8<<30), args[1], args[2:]...)
	in, err := x.cmd.StdinPipe()
	ts.Check(err)
	ts.Defer(func() { in.Close() })
	p.run(ts, args[0], x, &x.stdout)
}

// lookPath searches the script's PATH, not ours.
func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range regexp.MustCompile(":").Split(ts.Getenv("PATH"), -1) {
		path := dir + "/" + name
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return exec.LookPath(ts.MkAbs(name))
}

// await NAME REGEX: waits until a program prints a match that it had not printed
// at the last await.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await NAME REGEX")
	}
	x := programOf(ts, args[0])
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	for end := time.Now().Add(scriptPatience); ; time.Sleep(5 * time.Millisecond) {
		over := false
		select {
		case <-x.ended:
			over = true
		default:
		}
		text := x.both.String()
		if at := want.FindStringIndex(text[x.seen:]); at != nil {
			x.seen += at[1]
			return
		}
		if over || time.Now().After(end) {
			ts.Fatalf("%s did not say %q (ended: %v); it said:\n%s", args[0], args[1], over, text)
		}
	}
}

var signals = map[string]unix.Signal{
	"INT": unix.SIGINT, "TERM": unix.SIGTERM, "HUP": unix.SIGHUP, "KILL": unix.SIGKILL, "USR1": unix.SIGUSR1,
}

// sendSignal is "signal SIGNAL NAME".
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal INT|TERM|HUP|KILL|USR1 NAME")
	}
	ts.Check(programOf(ts, args[1]).cmd.Process.Signal(signals[args[0]]))
}

// interrupt NAME: what Ctrl-C on a terminal does to a program and to those that it started.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: interrupt NAME")
	}
	ts.Check(unix.Kill(-programOf(ts, args[0]).cmd.Process.Pid, unix.SIGINT))
}

// ends NAME CODE: waits for the end of a program. CODE is its exit code, "killed"
// after SIGKILL, or "0|5": one of these.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ends NAME CODE")
	}
	x := programOf(ts, args[0])
	select {
	case <-x.ended:
	case <-time.After(scriptPatience):
		ts.Fatalf("%s did not end; it said:\n%s", args[0], x.both.String())
	}
	fmt.Fprint(ts.Stdout(), x.stdout.String())
	fmt.Fprint(ts.Stderr(), x.stderr.String())
	got := strconv.Itoa(x.cmd.ProcessState.ExitCode())
	if status, ok := x.cmd.ProcessState.Sys().(interface{ Signaled() bool }); ok && status.Signaled() {
		got = "killed"
	}
	checkCode(ts, args[0], got, args[1], x.both.String())
}

// exits CODE PROGRAM [ARGUMENTS]: runs a program that must end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENTS]")
	}
	err := ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	got := "0"
	if errors.As(err, &ended) {
		got = strconv.Itoa(ended.ExitCode())
	} else {
		ts.Check(err)
	}
	checkCode(ts, args[1], got, args[0], "")
}

func checkCode(ts *testscript.TestScript, name, got, want, said string) {
	if !regexp.MustCompile("^(" + want + ")$").MatchString(got) {
		ts.Fatalf("%s ended with %s, want %s\n%s", name, got, want, said)
	}
}
