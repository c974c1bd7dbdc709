// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAHeldProcessDelaysNoOther has an unprivileged process hold its mmap_lock while a session
// begins and while another user's job runs. The session began when the hold ended.
func TestAHeldProcessDelaysNoOther(t *testing.T) {
	dir := setupAlone(t) // every other session would have a thread that waits for the process
	env := dir.Env(t, 1, 8<<30)
	folder, err := os.MkdirTemp("", "vramprof-holder") // other users must be able to read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	program, device, library, mount := filepath.Join(folder, "holder"), filepath.Join(folder, "fuse"), filepath.Join(folder, "libcudart.so.12"), filepath.Join(folder, "mount")
	const source = "../../../../tracer/libraries/testdata/holder.c"
	script := `set -e; gcc -O1 -pthread -o "$1" ` + source + `; cp -L "$2" "$3"; mkdir "$4"; mknod -m 666 "$5" c 10 229; chmod 755 "$6" "$1" "$3" "$4"`
	if out, err := exec.Command("sh", "-c", script, "sh", program, dir.Lib("libcudart.so.12"), library, mount, device, folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, device, mount, library)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	if line, _ := lines.ReadString('\n'); line != "maps\n" {
		t.Skip("no file system in user space for an unprivileged process: " + line)
	}
	fmt.Fprintln(in)
	if line, _ := lines.ReadString('\n'); line != "holds\n" {
		t.Fatalf("it prints %q", line)
	}
	name := fmt.Sprintf("held%x", time.Now().UnixNano()&0xffffffff)
	l := startLeaks(t, env, "--name", "^"+name+"$").ready()
	job := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(dir.Program("alloc_c"), job); err != nil {
		t.Fatal(err)
	}
	good := startTarget(t, env, job, writeFile(t, "script", "ready\nwait\nrepeat 300\nmalloc a 1000\nend\nprint done\nwait\n"))
	good.expectReady()
	l.untilUnwound(good.pid())
	eventually(t, 3*time.Minute, "the job's libraries are probed", func() bool {
		return strings.Contains(l.stderr.String(), "functions of libcuda.so")
	})
	good.next()
	good.expect("done")
	r := l.stop().leaks()
	good.end()
	checkWhole(t, r)
	var live uint64
	for _, x := range r.Sites {
		if int(x.PID) == good.pid() {
			live += x.LiveCount
		}
	}
	if live != 300 {
		t.Errorf("%d allocations of the job are live, want 300; %s", live, told(r))
	}
	if want := fmt.Sprintf("process %d stalls looks at its mappings", cmd.Process.Pid); !strings.Contains(strings.Join(r.Warnings, "\n"), want) {
		t.Errorf("no warning %q:\n%s", want, strings.Join(r.Warnings, "\n"))
	}
}
