// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"
	"sync"

	"golang.org/x/sys/unix"
)

type jobKind uint8

// In the order in which they are done.
const (
	jobHeld      jobKind = iota // a process stands still until we have looked at it
	jobScan                     // somebody mapped a CUDA library
	jobIntroduce                // a process is new, or has begun to use CUDA
	jobLoad                     // unwind tables of a process are missing or out of date
	jobLoadLater                // likewise, of a process that may never need them
	jobLearn                    // the devices of threads are to be learned
	jobLearned                  // long enough
	jobBlocks                   // processes ended and left blocks
	jobForget                   // a process has ended
	jobKinds
)

type job struct {
	kind jobKind
	pid  uint32
}

// jobs is what the worker has to do. Equal jobs are done once.
type jobs struct {
	mu   *sync.Mutex
	todo [jobKinds]map[uint32]bool
	wake chan struct{}
}

func newJobs() jobs {
	j := jobs{mu: new(sync.Mutex), wake: make(chan struct{}, 1)}
	for kind := range j.todo {
		j.todo[kind] = map[uint32]bool{}
	}
	return j
}

// add never blocks.
func (j *jobs) add(n job) {
	if n.kind == jobScan || n.kind == jobLearn || n.kind == jobLearned || n.kind == jobBlocks {
		n.pid = 0
	}
	j.mu.Lock()
	j.todo[n.kind][n.pid] = true
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// take removes the most urgent job.
func (j *jobs) take() (job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for kind, pids := range j.todo {
		for pid := range pids {
			delete(pids, pid)
			return job{jobKind(kind), pid}, true
		}
	}
	return job{}, false
}

// do does a job of another kind than jobForget.
func (t *Tracer) do(n job) {
	defer t.defects.recovered("a look at processes")
	switch n.kind {
	case jobHeld:
		t.lookAtHeld(n.pid)
	case jobScan:
		if err := t.discover(); err != nil {
			t.warn(err.Error())
		}
	case jobIntroduce:
		t.introduce(n.pid)
	case jobLoad:
		t.loadSoon(n.pid)
	case jobLoadLater:
		t.loadLater(n.pid)
	case jobLearn:
		if err := t.learn(); err != nil {
			t.warn(err.Error())
		}
	case jobLearned:
		t.endLearning()
	case jobBlocks:
		t.placeLeftBlocks()
	}
}

// forget drops what was kept for the last events of processes that have ended.
func (t *Tracer) forget() {
	defer t.defects.recovered("a look at processes")
	t.forgetTables()
	t.forgetContexts()
	t.forgetBlocks()
	if err := t.retire(); err != nil {
		t.warn(err.Error())
	}
	maps.DeleteFunc(t.tried, func(pid uint32, _ int) bool { return unix.Kill(int(pid), 0) == unix.ESRCH })
}
