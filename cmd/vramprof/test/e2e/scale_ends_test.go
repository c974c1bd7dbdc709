// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Four threads are always in calls when the process is killed, exits, or executes a program. The
// books up to then must add up, and a new process with the same pid starts with empty books.
func TestScaleExitsDuringCallsKeepTheBooksExact(t *testing.T) {
	for _, how := range []string{"kill", "exit", "exec"} {
		t.Run(how, func(t *testing.T) {
			dir := setup(t)
			env := append(dir.Env(t, 1, 8<<30), "FAKECUDA_LATENCY_US=200", "LD_LIBRARY_PATH="+privateLibraries(t, dir))
			target := startTarget(t, env, dir.Program("storm_c"), "within", how)
			target.expectReady()
			l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
			if how == "kill" {
				_ = target.Process.Kill()
			} else {
				target.next()
			}
			err := target.Wait()
			if (err != nil) != (how == "kill") {
				t.Errorf("the program: %v", err)
			}
			r := l.wait().leaks()
			l.checkCalm()
			// At the attach, each thread may be in a call with only half of its probes attached:
			// such stacks end there.
			cut := r.Losses.Truncated["unwind tables were not loaded yet, or the code is in no file"]
			if x := r.Losses; x.LostEvents != 0 || x.WithoutStack != 0 || x.Torn != 0 || cut > 4*4 || len(x.Truncated) > 1 {
				t.Error(told(r))
			}
			if n := len(r.Processes); n != 1 && !(n == 2 && how == "exec") {
				t.Fatalf("processes %+v", r.Processes)
			}
			first := r.Processes[0]
			if x := first.Totals[0]; !first.Ended || x.AllocatedBytes != 100*x.AllocatedCount || x.LiveCount > 4 || x.AllocatedCount == 0 {
				t.Errorf("%+v, want allocations of 100 bytes, at most one per thread", first)
			}
			if how != "exec" {
				return
			}
			if len(r.Processes) != 2 || len(r.Processes[1].Totals) != 1 || r.Processes[1].PID != first.PID || !r.Processes[1].Ended {
				t.Fatalf("processes %+v, want a second one with the same pid", r.Processes)
			}
			if x := r.Processes[1].Totals[0]; x.AllocatedCount != 2 || x.AllocatedBytes != 3000 || x.LiveBytes != 2000 {
				t.Errorf("%+v, want 2 allocations of 3000 bytes, 2000 live", x)
			}
		})
	}
}

// A container ends: all its processes are killed, and its mounts and files disappear.
func TestScaleVanishedContainerIsNamedAndUnmounted(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	folder := t.TempDir()
	mount := filepath.Join(folder, "root")
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mkdir "$0" && mount -t tmpfs none "$0" && cp "$1" "$0/alloc_c" && mkdir "$0/cuda" && cp -L "$2"/libcuda.so.1 "$2"/libcudart.so.12 "$0/cuda/" && LD_LIBRARY_PATH=$0/cuda exec "$0/alloc_c" "$3"`,
		mount, dir.Program("alloc_c"), filepath.Dir(dir.Lib("libcuda.so.1")), writeFile(t, "script", containerScript))
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	target := startCommand(t, cmd)
	target.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	target.next()
	target.expect("done")
	_ = unix.Kill(-target.pid(), unix.SIGKILL)
	_ = target.Wait()
	booksOf(t, s.wait().profile()).compare(t, containerBooks())
	r := l.wait().leaks()
	checkNoLosses(t, r)
	if len(r.Warnings) != 0 {
		t.Errorf("warnings %q", r.Warnings)
	}
}
