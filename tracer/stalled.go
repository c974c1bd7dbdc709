// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// stalled are the processes that a scan left out because they stall it: see procfs.Call. Any
// goroutine may call its methods.
type stalled struct {
	jobs      *jobs
	sequencer *sequence.Sequencer

	mu     sync.Mutex        // guards what follows
	again  map[uint32]bool   // by pid: those that are scanned again when their pause is over
	warned map[uint32]uint64 // by pid: procfs.StartTicks of those that a warning names
	news   []uint32          // those that warn is to name
}

// leastWait is for a process whose pause is over, but that the latest scan has left out.
const leastWait = 100 * time.Millisecond

// scanAgain has a process scanned again that a scan left out, or that has changed its mappings
// since. warn names one that stalls looks again: on a busy machine, any process may delay one.
func (s *stalled) scanAgain(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again[pid] {
		return
	}
	if s.again == nil {
		s.again, s.warned = map[uint32]bool{}, map[uint32]uint64{}
	}
	s.again[pid] = true
	pause := procfs.Pause(pid)
	time.AfterFunc(max(pause, leastWait), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.again, pid)
		if procfs.Exists(pid) {
			s.jobs.add(job{jobScan, pid})
		} else {
			delete(s.warned, pid)
		}
	})
	if ticks := procfs.StartTicks(pid); procfs.StallsAgain(pid) && s.warned[pid] != ticks {
		s.warned[pid] = ticks
		s.news = append(s.news, pid)
	}
}

// warn warns of the processes that have stalled a look since the last call.
func (s *stalled) warn() {
	s.mu.Lock()
	news := s.news
	s.news = nil
	s.mu.Unlock()
	for _, pid := range news {
		s.sequencer.Warn(pid, fmt.Sprintf("process %d stalls looks at its mappings: libraries that it maps meanwhile are not probed", pid))
	}
}

// pids returns the processes that the latest scans left out.
func (s *stalled) pids() map[uint32]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.again)
}
