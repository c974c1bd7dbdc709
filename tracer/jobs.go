// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

type jobKind uint8

// Kinds of jobs in order of urgency. The loader does those from jobLoad on, the worker the others.
const (
	jobHeld      jobKind = iota // a process is stopped until we have looked at it
	jobScan                     // a process has mapped a CUDA library, or with pid 0 any may have
	jobIntroduce                // a process is new, or has begun to use CUDA
	jobLearn                    // the devices of threads are to be learned
	jobLearned                  // long enough
	jobPyTorch                  // a process has PyTorch, whose settings are wanted
	jobBlocks                   // processes ended and left blocks
	jobEvict                    // what nobody uses is to be dropped
	jobForget                   // a process has ended
	jobLoad                     // unwind tables of a process are missing or out of date
	jobLoadLater                // likewise, of a process that may never need them
	jobKinds
)

type job struct {
	kind jobKind
	pid  uint32
}

// jobs is what the worker and the loader have to do. Equal jobs are done once. Any goroutine may
// add.
type jobs struct {
	mu   sync.Mutex
	todo [jobKinds]map[uint32]time.Time // by pid: since when
	at   time.Time                      // since when the job waited that the worker is at; zero: at none
	wake chan struct{}                  // the worker
	load chan struct{}                  // the loader
	busy bool                           // the loader is at one; guarded by mu
}

func newJobs() *jobs {
	j := &jobs{wake: make(chan struct{}, 1), load: make(chan struct{}, 1)}
	for kind := range j.todo {
		j.todo[kind] = map[uint32]time.Time{}
	}
	return j
}

// add never blocks.
func (j *jobs) add(n job) {
	if n.kind == jobLearn || n.kind == jobLearned || n.kind == jobBlocks || n.kind == jobEvict {
		n.pid = 0
	}
	j.mu.Lock()
	if _, waits := j.todo[n.kind][n.pid]; !waits {
		j.todo[n.kind][n.pid] = time.Now()
	}
	j.mu.Unlock()
	wake := j.wake
	if n.kind >= jobLoad {
		wake = j.load
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// take removes the worker's most urgent job.
func (j *jobs) take() (job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, since, ok := j.takeOf(0, jobLoad)
	if ok {
		j.at = since
	}
	return n, ok
}

// begin notes that the worker begins with what waited since a time, and end that it has done so.
func (j *jobs) begin(since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at = since
}

func (j *jobs) end() { j.begin(time.Time{}) }

// age returns for how long the oldest of the worker's jobs has waited, with the one that it is at.
func (j *jobs) age(now time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	oldest := now
	if !j.at.IsZero() {
		oldest = j.at
	}
	for kind := range jobLoad {
		for _, since := range j.todo[kind] {
			if since.Before(oldest) {
				oldest = since
			}
		}
	}
	return now.Sub(oldest)
}

// takeIntroduction removes a process that is to be introduced.
func (j *jobs) takeIntroduction() (pid uint32, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, _, ok := j.takeOf(jobIntroduce, jobIntroduce+1)
	return n.pid, ok
}

// scans returns the processes that are to be scanned.
func (j *jobs) scans() []uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.todo[jobScan]))
}

// takeLoad removes the loader's.
func (j *jobs) takeLoad() (n job, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, _, j.busy = j.takeOf(jobLoad, jobKinds)
	return n, j.busy
}

// takeOf removes a job of the first kind that has one; mu is held.
func (j *jobs) takeOf(from, to jobKind) (n job, since time.Time, ok bool) {
	for kind := from; kind < to; kind++ {
		for pid, since := range j.todo[kind] {
			delete(j.todo[kind], pid)
			if kind == jobScan && pid == 0 {
				clear(j.todo[kind]) // all are looked at
			}
			return job{kind, pid}, since, true
		}
	}
	return job{}, time.Time{}, false
}

// JobAge returns for how long the oldest job of the goroutine that finds and probes processes has
// waited, or has been under way: seconds at most, unless a process or the kernel holds it up. Any
// goroutine may call it.
func (t *Tracer) JobAge() time.Duration { return t.jobs.age(time.Now()) }
