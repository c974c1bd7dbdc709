// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/deadline"
)

// readPatience is how long the profiler waits for one read.
const readPatience = 500 * time.Millisecond

// memory is the memory of a process. After one read has timed out, all later reads fail at once:
// the profiler makes dozens of reads while it holds a lock on the tables of all processes.
type memory struct {
	pid   uint32
	stuck atomic.Bool
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if m.stuck.Load() {
		return 0, deadline.ErrStuck
	}
	size := len(p)
	b, err := deadline.Call(readPatience, func() ([]byte, error) {
		b := make([]byte, size) // the caller may reuse p after a timeout
		return b, readMemory(m.pid, uint64(off), b)
	})
	if errors.Is(err, deadline.ErrStuck) {
		m.stuck.Store(true)
	}
	if err != nil {
		return 0, err
	}
	return copy(p, b), nil
}

// readMemory reads len(b) bytes at an address of a process.
func readMemory(pid uint32, address uint64, b []byte) error {
	if err := procmem.Read(int(pid), b, address); err != nil {
		return fmt.Errorf("read %d bytes of process %d at %#x: %w", len(b), pid, address, err)
	}
	return nil
}

// memoryOf returns the memory of a process, the same one until the process is forgotten.
func (u *Unwinder) memoryOf(pid uint32) *memory {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	m := u.memories[pid]
	if m == nil {
		m = &memory{pid: pid}
		u.memories[pid] = m
	}
	return m
}
