// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Fifty processes that use CUDA among five thousand that do not.
func TestScaleFiveThousandProcesses(t *testing.T) {
	onlyLong(t)
	const sleepers, users = 5000, 50
	dir := setup(t)
	need(t, "/proc/sys/kernel/pid_max", 3*sleepers)
	need(t, "/proc/sys/kernel/threads-max", 3*sleepers)
	env := dir.Env(t, 1, 64<<30)
	// Each process waits for a writer of the FIFO.
	crowd := startCommand(t, withGroup(exec.Command("sh", "-c",
		fmt.Sprintf(`mkfifo "$0" && i=0 && while [ $i -lt %d ]; do (: <"$0") & i=$((i+1)); done; echo crowd; wait`, sleepers), t.TempDir()+"/fifo")))
	t.Cleanup(func() { _ = unix.Kill(-crowd.pid(), unix.SIGKILL) })
	name := fmt.Sprintf("user%x", time.Now().UnixNano()&0xffffffff)
	program := copyFile(t, dir.Program("alloc_c"), t.TempDir()+"/"+name)
	script := writeFile(t, "script", "free0\nready\nwait\nmalloc a 1000\nmalloc b 24\nfree b\nprint done\nwait\n")
	list := make([]*target, users)
	for i := range list {
		list[i] = startTarget(t, env, program, script)
	}
	for _, p := range list {
		p.expectReady()
	}
	crowd.expect("crowd")

	began := time.Now()
	l := startLeaks(t, env, "--name", "^"+name+"$").ready()
	t.Logf("attached in %v", time.Since(began).Round(time.Millisecond))
	for _, command := range []string{"ps", "check"} {
		began := time.Now()
		cmd := exec.Command(binary(t), command)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		t.Logf("%s: %v, %v", command, time.Since(began).Round(time.Millisecond), err)
		if n := strings.Count(string(out), name); command == "ps" && n != users {
			t.Errorf("ps lists %d processes, want %d:\n%s", n, users, out)
		}
	}
	late := startTarget(t, env, program, script)
	late.expectReady()
	l.afterASecond()
	for _, p := range append(list, late) {
		p.next()
	}
	for _, p := range append(list, late) {
		p.expect("done")
	}
	l.checkVitals("with 5,000 processes")
	r := l.stop().leaks()
	for _, p := range append(list, late) {
		p.end()
	}
	if x := r.Losses; x.LostEvents != 0 || x.UnmatchedFrees != 0 || x.ReusedAddresses != 0 {
		t.Error(told(r))
	}
	if got, bytes, live, _ := sums(r); len(r.Processes) != users+1 || got != 2*(users+1) || bytes != 1024*(users+1) || live != users+1 {
		t.Errorf("%d allocations of %d bytes, %d live, in %d processes; want %d of %d, %d, in %d; %s", got, bytes, live, len(r.Processes),
			2*(users+1), 1024*(users+1), users+1, users+1, told(r))
	}
}

func withGroup(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}
