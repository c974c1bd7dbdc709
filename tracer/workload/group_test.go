// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// startIn starts a process in a control group with this path below one of the test's own. It skips
// the test if that is not possible.
func startIn(t *testing.T, path string) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	end := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		top := filepath.Join(root, fmt.Sprintf("vramprof-test-%d", os.Getpid()))
		at := filepath.Join(top, path)
		err := os.MkdirAll(at, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
		}
		if err == nil {
			t.Cleanup(func() { end(); removeGroups(t, top, at) })
			return cmd.Process.Pid
		}
		removeGroups(t, top, at)
	}
	end()
	t.Skip("cannot create a control group")
	return 0
}

// removeGroups removes the groups from at up to top. A process leaves its group shortly after its
// parent has waited for it.
func removeGroups(t *testing.T, top, at string) {
	for ; len(at) >= len(top); at = filepath.Dir(at) {
		err := os.Remove(at)
		for end := time.Now().Add(5 * time.Second); err != nil && !os.IsNotExist(err) && time.Now().Before(end); err = os.Remove(at) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}
