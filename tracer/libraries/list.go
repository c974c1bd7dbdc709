// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// Process is a process that maps a CUDA library.
type Process struct {
	PID       uint32
	Libraries []string // base names of files: untrusted, but without control characters
}

// List returns the processes that map a CUDA library now, ordered by pid. It needs no programs in
// the kernel, and reads what the caller may: unread counts the processes that it may not read, or
// that stall it.
func List() (list []Process, unread int, err error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	var left atomic.Int64
	found := scanEach(pids, allPatience, func(pid uint32) (scan, error) {
		found, err := lookAtMaps(pid)
		if errors.Is(err, fs.ErrPermission) {
			left.Add(1)
		}
		return found, err
	}, func(uint32) { left.Add(1) })
	for _, l := range found.list {
		if n := len(list); n == 0 || list[n-1].PID != l.PID {
			list = append(list, Process{PID: l.PID})
		}
		last := &list[len(list)-1]
		if !l.Program && l.Layer.IsCUDA() && !slices.Contains(last.Libraries, l.Name) {
			last.Libraries = append(last.Libraries, l.Name)
		}
	}
	return list, int(left.Load()), nil
}
