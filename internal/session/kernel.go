// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer"
)

// KernelMemory returns what tracing takes of the kernel's memory now, in bytes: its maps, and
// unwind tables besides.
func KernelMemory(t *tracer.Tracer) (maps, tables uint64) {
	return mapBytes("/proc/self/fdinfo"), t.UnwindTableBytes()
}

// noteKernelMemory reports what tracing takes of the kernel's memory now.
func (s *Session) noteKernelMemory() {
	maps, tables := KernelMemory(s.tracer)
	s.Trace.Note(fmt.Sprintf("kernel memory: maps take %s, and unwind tables %s more", format.Bytes(maps), format.Bytes(tables)))
}

// mapBytes sums the lines "memlock:\t4096" of the maps among the open files. Several files may be
// of one map, which "map_id:\t7" tells.
func mapBytes(dir string) (total uint64) {
	files, _ := os.ReadDir(dir)
	seen := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(dir + "/" + f.Name())
		if err != nil || !strings.Contains(string(text), "map_type:") {
			continue
		}
		id, bytes := "", uint64(0)
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "memlock:"); ok {
				bytes, _ = strconv.ParseUint(strings.TrimSpace(n), 10, 63)
			} else if n, ok := strings.CutPrefix(line, "map_id:"); ok {
				id = n
			}
		}
		if id == "" || !seen[id] {
			seen[id] = true
			total += bytes
		}
	}
	return total
}
