// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// Process is a process that maps a CUDA library.
type Process struct {
	PID       uint32
	Libraries []string // base names of files: untrusted, but without control characters
}

// Unread are the processes whose mappings List could not read, ordered by pid.
type Unread struct {
	Denied   []uint32 // the kernel denies it
	Stalling []uint32 // see procfs.Call
}

// Count returns how many there are.
func (u Unread) Count() int { return len(u.Denied) + len(u.Stalling) }

// List returns the processes that map a CUDA library now, ordered by pid. It needs no programs in
// the kernel, and reads what the caller may.
func List() (list []Process, unread Unread, err error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, unread, fmt.Errorf("list processes: %w", err)
	}
	var mu sync.Mutex
	add := func(pids *[]uint32, pid uint32) {
		mu.Lock()
		defer mu.Unlock()
		*pids = append(*pids, pid)
	}
	found := scanEach(pids, allPatience, func(pid uint32) (scan, error) {
		found, err := lookAtMaps(pid)
		if errors.Is(err, fs.ErrPermission) {
			add(&unread.Denied, pid)
		}
		return found, err
	}, func(pid uint32) { add(&unread.Stalling, pid) })
	slices.Sort(unread.Denied)
	slices.Sort(unread.Stalling)
	for _, l := range found.list {
		if n := len(list); n == 0 || list[n-1].PID != l.PID {
			list = append(list, Process{PID: l.PID})
		}
		last := &list[len(list)-1]
		if !l.Program && l.Layer.IsCUDA() && !slices.Contains(last.Libraries, l.Name) {
			last.Libraries = append(last.Libraries, l.Name)
		}
	}
	return list, unread, nil
}
