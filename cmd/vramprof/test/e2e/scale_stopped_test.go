// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Events that a stopped tracer does not read wait in the kernel, up to 260,000; a stopped program
// has no events. Neither loses anything or blocks the other.
func TestScaleStoppedTracerAndProgramLoseNothing(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script",
		"free0\nready\nwait\nrepeat 1000\nmalloc a 10\nfree a\nend\nprint half\nwait\nmalloc b 100\nprint done\nwait\n"))
	target.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	stop := func(pid int) {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "vramprof is stopped", func() bool { return stateOf(pid) == 'T' })
	}
	stop(l.cmd.Process.Pid)
	target.next()
	target.expect("half") // the program does not wait for the tracer
	stop(target.pid())
	_ = unix.Kill(l.cmd.Process.Pid, unix.SIGCONT)
	l.afterASecond()
	_ = unix.Kill(target.pid(), unix.SIGCONT)
	target.next()
	target.expect("done")
	target.end()
	r := l.wait().leaks()
	checkNoLosses(t, r)
	if got, bytes, live, _ := sums(r); got != 1001 || bytes != 10_100 || live != 1 {
		t.Errorf("%d allocations of %d bytes, %d live, want 1001 of 10100, one; %s", got, bytes, live, told(r))
	}
}

// With --name, the kernel half sends the events of a new process until the tracer has read its
// name. No unwind tables are loaded for it yet, so its stacks are truncated. If the name does not
// match, these are no losses of the session.
func TestNewProcessesWithOtherNamesAddNoLosses(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	name := fmt.Sprintf("named%x", time.Now().UnixNano()&0xffffffff)
	program := filepath.Join(t.TempDir(), name) // no other test's program has this name
	if err := os.Symlink(dir.Program("alloc_c"), program); err != nil {
		t.Fatal(err)
	}
	target := startTarget(t, env, program, writeFile(t, "script", "free0\nready\nwait\nmalloc a 10\nprint done\nwait\n"))
	target.expectReady()
	l := startLeaks(t, env, "--name", "^"+name+"$").ready()
	if err := l.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := startTarget(t, env, "/usr/bin/python3", dir.Program("leak.py"), "--stdin", "--threads", "1")
	other.expectReady()
	other.next()
	other.until("done")
	_ = l.cmd.Process.Signal(unix.SIGCONT)
	l.afterASecond()
	other.end()
	target.next()
	target.expect("done")
	target.end()
	r := l.stop().leaks()
	checkNoLosses(t, r)
	if got, bytes, live, _ := sums(r); got != 1 || bytes != 10 || live != 1 || r.Losses.Stacks != 1 {
		t.Errorf("%d allocations of %d bytes, %d live, want one of 10; %s", got, bytes, live, told(r))
	}
}
