// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/cudaapi"
)

// Process is a process that maps a CUDA library.
type Process struct {
	PID       uint32
	Libraries []string // base names of files: untrusted, but without control characters
}

// List returns the processes that map a CUDA library now, ordered by pid. It attaches nothing.
func List() ([]Process, error) {
	s, err := OpenScanner()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	found, err := s.Scan()
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, l := range found {
		if n := len(list); n == 0 || list[n-1].PID != l.PID {
			list = append(list, Process{PID: l.PID})
		}
		last := &list[len(list)-1]
		if !l.Program && l.Layer != cudaapi.Torch && !slices.Contains(last.Libraries, l.Name) {
			last.Libraries = append(last.Libraries, l.Name)
		}
	}
	return list, nil
}
