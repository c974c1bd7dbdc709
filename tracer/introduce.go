// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/workload"
)

// introductions look at processes that are new, or that begin to use CUDA. Only the worker may call
// the methods, and Run while there is no worker.
type introductions struct {
	host      *workload.Host
	sequencer *sequence.Sequencer
	defects   *panics.List
	table     *processes.Table
	usage     *gpuusage.Monitor
	jobs      *jobs
}

// introduce tells the books on whose behalf a process runs and which GPUs it sees. Only the worker
// may call it: reading an environment can take a second.
func (i *introductions) introduce(pid uint32) {
	variables, err := procenv.Read(pid)
	switch {
	case errors.Is(err, deadline.ErrStuck) && variables == nil:
		time.AfterFunc(max(procfs.Pause(pid), leastWait), func() { i.jobs.add(job{jobIntroduce, pid}) })
	case variables == nil && err != nil:
		return // gone
	}
	workload := i.host.Read(pid, variables, procfs.CommandLine(pid))
	view := gpuusage.Look(pid, variables, workload.Container != "")
	tx := i.sequencer.Begin()
	defer tx.Done()
	if !i.table.IsBooked(pid) {
		return
	}
	tx.Tell(ledger.Process{PID: pid, Workload: workload})
	i.usage.Introduce(tx, pid, view)
}

// introductionTime limits how long the attach, and the end, wait for the introductions of processes
// that are due: less than 1 ms each, or up to 2 s for one that stalls its readers.
const introductionTime = time.Second

// due introduces the processes that wait for it. Only the worker may call it, and Run while there
// is no worker. Without it, a session that is short, or whose worker is busy, would not know the
// GPUs of processes that it has traced, nor their jobs.
func (i *introductions) due() {
	defer i.defects.Recovered("a look at processes")
	for begin := time.Now(); time.Since(begin) < introductionTime; {
		pid, ok := i.jobs.takeIntroduction()
		if !ok {
			return
		}
		i.introduce(pid)
	}
}
