// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"fmt"
	"slices"
	"sync"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Everywhere lists the mappings of code from files with an inode number, by the processes that have
// them. The file systems of containers show one file with different devices, so other files with
// the number are among them. It leaves out processes that this one may not read; stalling has those
// that stall it.
func Everywhere(inode uint64) (list []Mapped, stalling []uint32, err error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, nil, fmt.Errorf("scan mappings: %w", err)
	}
	var mu sync.Mutex
	found := scanEach(pids, allPatience, func(pid uint32) (scan, error) {
		list, err := codeFrom(pid, inode)
		return scan{list: list}, err
	}, func(pid uint32) {
		mu.Lock()
		defer mu.Unlock()
		stalling = append(stalling, pid)
	})
	slices.Sort(stalling)
	return found.list, stalling, nil
}

// codeFrom lists the mappings of code of a process from files with an inode number.
func codeFrom(pid uint32, inode uint64) (list []Mapped, err error) {
	return list, eachMapping(pid, func(m procmaps.Mapping, thread uint32) bool {
		if m.Inode != inode {
			return true
		}
		if l, ok := codeOf(m, pid, thread); ok && len(list) < fewMapped {
			l.Layer = cudaapi.System
			list = append(list, l)
		}
		return true
	})
}
