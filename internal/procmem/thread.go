// SPDX-License-Identifier: Apache-2.0

package procmem

import (
	"fmt"
	"os"
	"strconv"
)

// maxThreads is how many threads of a process Thread looks at.
const maxThreads = 1 << 14

// Thread returns the id under which /proc has the memory of a process: its pid, or the id of
// another thread if the main thread has ended before the others (pthread_exit). Then mappings,
// memory, root and descriptors in /proc/PID are missing, as for a process that has ended; /proc has
// them in the folder of each thread that runs. For a process that has ended, it returns the pid.
func Thread(pid int) int {
	if hasMemory(pid) {
		return pid
	}
	threads, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return pid
	}
	defer threads.Close()
	names, _ := threads.Readdirnames(maxThreads)
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil && tid != pid && hasMemory(tid) {
			return tid
		}
	}
	return pid
}

// hasMemory reads the size of a thread's memory, in pages.
func hasMemory(tid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", tid))
	return err == nil && len(text) > 0 && text[0] != '0'
}
