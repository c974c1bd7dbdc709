// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// FuzzProc parses /proc/PID/stat, status and cmdline, in which a process has its own name and
// arguments.
func FuzzProc(f *testing.F) {
	stat, _ := os.ReadFile("/proc/self/stat")
	status, _ := os.ReadFile("/proc/self/status")
	f.Add("train", string(stat), string(status), "python3\x00train.py\x00--x")
	f.Add(") R 1 (", "1 (a) R 1 2 3\n(b) S 4) R 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24", "Name:\tNSpid:\t1\nNSpid:\t4242\t7\n", "\x00\x00/\x00")
	f.Add("x\ny", "", "NSpid:\n", "")
	f.Fuzz(func(t *testing.T, comm, stat, status, cmdline string) {
		parseTicks(stat)
		// The name, whatever it is, does not move the fields behind it.
		const ticks = 123456
		fields := strings.Repeat("0 ", 18) + strconv.Itoa(ticks) + " 0 0"
		if got := parseTicks("7 (" + strings.ReplaceAll(comm, "\x00", "") + ") S " + fields); got != ticks {
			t.Errorf("name %q: %d ticks", comm, got)
		}
		if n := parseNSpid(status); n > 1<<31 {
			t.Errorf("pid %d", n)
		}
		if _, ok := parseUID(status); ok && !strings.Contains(status, "Uid:") {
			t.Errorf("a user of %q", status)
		}
		names := joinNames(comm, cmdline)
		if len(names) > len(comm)+len(cmdline)+8 {
			t.Errorf("%d bytes of names of %d", len(names), len(comm)+len(cmdline))
		}
	})
}
