// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// hostMemory returns MemTotal, and MemTotal minus MemAvailable, in bytes; 0 if they are unknown.
func hostMemory() (total, used uint64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	return parseMeminfo(f)
}

// parseMeminfo reads lines such as "MemTotal:       131072 kB".
func parseMeminfo(r io.Reader) (total, used uint64) {
	known := map[string]uint64{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if f := strings.Fields(rest); len(f) == 2 && f[1] == "kB" {
			if n, err := strconv.ParseUint(f[0], 10, 50); err == nil {
				known[name] = n << 10
			}
		}
	}
	total, available := known["MemTotal"], known["MemAvailable"]
	if available == 0 || available > total {
		return total, 0
	}
	return total, total - available
}
