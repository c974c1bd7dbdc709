// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/functions"
)

// CUDAProcess is a process that maps a CUDA library now.
type CUDAProcess struct {
	PID       uint32
	Libraries []string // file names, untrusted but free of control characters
}

// List finds the CUDA processes without tracing anything.
func List() ([]CUDAProcess, error) {
	s, err := openScanner()
	if err != nil {
		return nil, err
	}
	defer s.close()
	found, err := s.scan()
	if err != nil {
		return nil, err
	}
	var list []CUDAProcess
	for _, l := range found {
		if n := len(list); n == 0 || list[n-1].PID != l.pid {
			list = append(list, CUDAProcess{PID: l.pid})
		}
		last := &list[len(list)-1]
		if !l.program && l.layer != functions.Torch && !slices.Contains(last.Libraries, l.name) {
			last.Libraries = append(last.Libraries, l.name)
		}
	}
	return list, nil
}
