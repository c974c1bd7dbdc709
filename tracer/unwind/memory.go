// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/deadline"
)

// readPatience is how long the profiler waits for one read.
const readPatience = 500 * time.Millisecond

// After a read has timed out, all reads of that process fail at once for a pause: the profiler
// makes dozens of reads while it holds a lock on the tables of all processes. A busy machine may
// have been the reason, so one read is tried again then; each further timeout doubles the pause. So
// a process can hold the lock for 1 % of the time, after its first minutes.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// memory is the memory of a process.
type memory struct {
	pid uint32

	mu    sync.Mutex
	pause time.Duration // after the last read that timed out; 0: none did
	until time.Time     // no read is tried before
}

// paused reports whether reads fail at once.
func (m *memory) paused(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.until)
}

// timedOut begins a pause.
func (m *memory) timedOut(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pause = min(max(2*m.pause, firstPause), mostPause)
	m.until = now.Add(m.pause)
}

// hasTimedOut reports whether a read ever timed out.
func (m *memory) hasTimedOut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pause > 0
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if m.paused(time.Now()) {
		return 0, deadline.ErrStuck
	}
	size := len(p)
	b, err := deadline.Call(readPatience, func() ([]byte, error) {
		b := make([]byte, size) // the caller may reuse p after a timeout
		return b, readMemory(m.pid, uint64(off), b)
	})
	if deadline.Stalled(err) {
		m.timedOut(time.Now())
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

// memories holds the memory of each process. Its zero value is empty, and any goroutine may call
// its methods.
type memories struct {
	mu    sync.Mutex // held briefly
	byPID map[uint32]*memory
}

// of returns the memory of a process, the same one until the process is forgotten.
func (l *memories) of(pid uint32) *memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPID == nil {
		l.byPID = map[uint32]*memory{}
	}
	m := l.byPID[pid]
	if m == nil {
		m = &memory{pid: pid}
		l.byPID[pid] = m
	}
	return m
}

// forget drops the memory of processes that have ended, and returns these.
func (l *memories) forget(ended func(pid uint32) bool) (pids []uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid := range l.byPID {
		if ended(pid) {
			delete(l.byPID, pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// stuck returns at most most sentences about processes of which a read has timed out.
func (l *memories) stuck(most int) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.byPID {
		if m.hasTimedOut() && len(list) < most {
			list = append(list, fmt.Sprintf("some stacks of process %d are truncated: reads of its memory timed out", m.pid))
		}
	}
	return list
}
