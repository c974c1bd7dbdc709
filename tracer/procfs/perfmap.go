// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// OpenPerfMap opens the file in which a JIT compiler of a process names its code: /tmp/perf-PID.map
// as the process sees it, with the pid that it has in its own pid namespace.
//
// The file must belong to the user of the process, as perf requires it too: by a link to a file
// that only root may read, the process would have its content printed in a report.
func OpenPerfMap(pid uint32) (*os.File, error) {
	f, err := untrusted.OpenIn(fmt.Sprintf("/proc/%d/root", Thread(pid)), fmt.Sprintf("/tmp/perf-%s.map", namespacePID(pid)))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	uid, known := parseUID(string(Read(pid, "status", 8192)))
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || !known || st.Uid != uid {
		f.Close()
		return nil, errors.New("the perf map is not the process's own")
	}
	return f, nil
}

// WritesPerfMap reports whether a process has a perf map.
func WritesPerfMap(pid uint32) bool {
	f, err := OpenPerfMap(pid)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// parseUID finds the effective user in "Uid:\t1000\t1000\t1000\t1000" of /proc/PID/status.
func parseUID(status string) (uid uint32, ok bool) {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Uid:"); ok {
			if fields := strings.Fields(list); len(fields) > 1 {
				n, err := strconv.ParseUint(fields[1], 10, 32)
				return uint32(n), err == nil
			}
		}
	}
	return 0, false
}

// namespacePID returns the pid that a process has in its own pid namespace.
func namespacePID(pid uint32) string {
	if own := parseNSpid(string(Read(pid, "status", 8192))); own != 0 {
		return fmt.Sprint(own)
	}
	return fmt.Sprint(pid)
}

// parseNSpid returns the last field of "NSpid:\t4242\t7", 0 for a text without that line.
func parseNSpid(status string) uint64 {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if fields := strings.Fields(list); len(fields) > 0 {
				n, _ := strconv.ParseUint(fields[len(fields)-1], 10, 31)
				return n
			}
		}
	}
	return 0
}
