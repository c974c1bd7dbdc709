// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// sudo, su and runuser stop themselves with their child, and nobody continued them.
func TestParentsThatStopWithAHeldProcessGoOn(t *testing.T) {
	// A shell and its child are the command; the shell stops.
	shell := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := shell.StdoutPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 16)
	n, _ := out.Read(text)
	child, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(child, unix.SIGKILL); shell.Process.Kill(); shell.Wait() })
	pid := uint32(shell.Process.Pid)
	held := func(pid uint32) bool { return pid != uint32(os.Getpid()) }
	expect := func(stopped bool) {
		t.Helper()
		for begin := time.Now(); procfs.IsStopped(pid) != stopped; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("want stopped: %v", stopped)
			}
		}
	}
	stop := func() {
		shell.Process.Signal(unix.SIGSTOP)
		expect(true)
	}
	now, list := time.Now(), parents{}
	list.watch(uint32(child), now, held)
	if len(list) != 1 || list[pid].IsZero() {
		t.Fatalf("%v is watched, want %d", list, pid)
	}
	stop()
	list.release(now)
	expect(false)
	stop()
	list.release(now.Add(stopsWithin + 1)) // the last look
	expect(false)
	stop() // by somebody else
	list.release(now.Add(time.Minute))
	if len(list) != 0 || !procfs.IsStopped(pid) {
		t.Errorf("%v is watched, and it goes on: %v", list, !procfs.IsStopped(pid))
	}
}
