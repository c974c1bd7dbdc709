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

// TestServeClosesNVMLOnASignalUntilAProcessUsesCUDA counts how often NVML is initialized and shut
// down, and looks at what serve has open, as whoever unloads the driver does.
func TestServeClosesNVMLOnASignalUntilAProcessUsesCUDA(t *testing.T) {
	dir := setupAlone(t) // a process that uses CUDA opens NVML again
	log := filepath.Join(t.TempDir(), "nvml")
	env := append(dir.Env(t, 1, 1<<30), "FAKECUDA_NVML_LOG="+log)
	x := startServe(t, env, "--holders", "off")
	x.waitFor(`"msg":"tracing"`)
	uses := func() bool {
		folder := fmt.Sprintf("/proc/%d/fd/", x.cmd.Process.Pid)
		for _, fd := range must(os.ReadDir(folder)) {
			if file, err := os.Readlink(folder + fd.Name()); err == nil && file == log {
				return true
			}
		}
		return false
	}
	eventually(t, 10*time.Second, "NVML is open", uses)
	before := len(must(os.ReadFile(log)))
	if err := x.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	x.waitFor("NVML is closed for a minute")
	if uses() {
		t.Error("NVML is still open")
	}
	time.Sleep(2500 * time.Millisecond) // two readings would be due
	if calls := string(must(os.ReadFile(log)))[before:]; calls != "shutdown\n" || uses() {
		t.Errorf("after the signal NVML was called %q", calls)
	}
	p := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "ready\nmalloc a 1000000\nwait\n"))
	p.expectReady()
	eventually(t, 10*time.Second, "a process that uses CUDA opens NVML again", uses)
	if calls := string(must(os.ReadFile(log)))[before:]; calls != "shutdown\ninit\n" {
		t.Errorf("NVML was called %q", calls)
	}
	p.end()
}
