// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"

	"github.com/vramprof/vramprof/tracer/libraries"
)

// mappedFiles are the parts of files that processes map, by file and process.
type mappedFiles map[libraries.FileKey]map[uint32][]libraries.Mapped

// maxParts limits the parts of a file in a process that are known. A process that has more can only
// hide its own patches.
const maxParts = 64

// note takes the mappings of processes, which replace what was known of the same files in them.
func (m mappedFiles) note(found []libraries.Mapped) {
	type key struct {
		file libraries.FileKey
		pid  uint32
	}
	seen := map[key]bool{}
	for _, l := range found {
		parts := m[l.File]
		if parts == nil {
			parts = map[uint32][]libraries.Mapped{}
			m[l.File] = parts
		}
		if k := (key{l.File, l.PID}); !seen[k] {
			seen[k] = true
			delete(parts, l.PID)
		}
		if len(parts[l.PID]) < maxParts {
			parts[l.PID] = append(parts[l.PID], l)
		}
	}
}

// of returns all mappings of a file.
func (m mappedFiles) of(key libraries.FileKey) (list []libraries.Mapped) {
	for _, parts := range m[key] {
		list = append(list, parts...)
	}
	return list
}

// ofProcesses returns all mappings of some processes.
func (m mappedFiles) ofProcesses(pids map[uint32]bool) (list []libraries.Mapped) {
	for _, parts := range m {
		for pid := range pids {
			list = append(list, parts[pid]...)
		}
	}
	return list
}

// ofFile returns the mappings of a file.
func ofFile(found []libraries.Mapped, key libraries.FileKey) (list []libraries.Mapped) {
	for _, l := range found {
		if l.File == key {
			list = append(list, l)
		}
	}
	return list
}

// pathOf returns a path to an open file, also if it was deleted.
func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
