// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckProcess returns an error if pid is not a process.
func CheckProcess(pid uint32) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d does not exist (vramprof ps lists those that use CUDA)", pid)
	}
	for line := range strings.Lines(string(status)) { // "Tgid:\t4242"
		if text, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if process := strings.TrimSpace(text); process != fmt.Sprint(pid) {
				return fmt.Errorf("%d is a thread of process %s (use -p %s)", pid, process, process)
			}
		}
	}
	return nil
}
