// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openPerfMap opens the file in which a JIT compiler of the process names its
// code: /tmp/perf-PID.map, as the process sees it, with the pid that it has in its own
// pid namespace. Links that lead out of the process's root are not followed.
func openPerfMap(pid uint32) (*os.File, error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root of process %d: %w", pid, err)
	}
	defer unix.Close(root)
	name := fmt.Sprintf("tmp/perf-%s.map", ownPID(pid))
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s of process %d: %w", name, pid, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.New("not a regular file")
	}
	return f, nil
}

// ownPID is the pid that a process has in its own namespace: the last field of
// "NSpid:\t4242\t7".
func ownPID(pid uint32) string {
	for line := range strings.Lines(string(readProc(pid, "status", 8192))) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if fields := strings.Fields(list); len(fields) > 0 {
				return fields[len(fields)-1]
			}
		}
	}
	return fmt.Sprint(pid)
}

// writesPerfMap says whether the process has a perf map file.
func writesPerfMap(pid uint32) bool {
	f, err := openPerfMap(pid)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
