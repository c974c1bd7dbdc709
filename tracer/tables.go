// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// tableLoader brings the unwind tables of processes up to date.
type tableLoader struct {
	unwind    *unwind.Unwinder
	sequencer *sequence.Sequencer
	defects   *panics.List
	table     *processes.Table
	stacks    *stacks.Store
	jobs      *jobs
	note      func(string)

	loads sync.WaitGroup // of processes that discover has found
}

// run loads unwind tables until ctx ends, in a goroutine of its own: processes that
// have just begun do not wait until the libraries of others are probed.
func (l *tableLoader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.jobs.load:
		}
		for ctx.Err() == nil {
			n, ok := l.jobs.takeLoad()
			if !ok {
				break
			}
			l.do(n)
		}
	}
}

// do does a job of the loader.
func (l *tableLoader) do(n job) {
	defer l.defects.Recovered("a look at processes")
	switch n.kind {
	case jobLoad:
		l.loadSoon(n.pid)
	case jobLoadLater:
		l.loadLater(n.pid)
	}
}

// begin loads the tables of processes that a scan has found, and closes loaded when it has those
// that are urgent.
func (l *tableLoader) begin(pids []uint32, layouts map[uint32]uint64) (loaded chan struct{}) {
	load, rest := urgent(pids, layouts)
	loaded = make(chan struct{})
	l.loads.Go(func() {
		defer close(loaded)
		defer l.defects.Recovered("the unwind tables of a process")
		for _, pid := range load {
			l.load(pid, layouts[pid])
		}
		for _, pid := range rest {
			l.jobs.add(job{jobLoadLater, pid})
		}
	})
	return loaded
}

// loadSoon loads the tables of a process now, or when it may again.
func (l *tableLoader) loadSoon(pid uint32) {
	switch wait, traced := l.table.NextLoad(pid); {
	case !traced:
	case wait > 0:
		time.AfterFunc(wait, func() { l.jobs.add(job{jobLoad, pid}) })
	default:
		l.load(pid, 0)
	}
}

// loadLater loads the tables of a process that has none yet.
func (l *tableLoader) loadLater(pid uint32) {
	if l.table.IsUnloaded(pid) {
		l.load(pid, 0)
	}
}

// load brings the unwind tables of a traced process up to date. layout is what a scan has
// just found of it, 0 if it is not known: a process with the layout of another one needs no tables
// of its own.
func (l *tableLoader) load(pid uint32, layout uint64) {
	if !l.table.IsTraced(pid) {
		return
	}
	began := time.Now()
	number, shared := l.unwind.Share(pid, layout)
	if !shared {
		number = l.unwind.Load(pid, layout)
	}
	jit := procfs.WritesPerfMap(pid)
	tx := l.sequencer.Begin()
	first, changed := l.table.TablesLoaded(tx, pid, number, jit, time.Since(began))
	tx.Done()
	l.stacks.Place(pid)
	switch {
	case shared:
	case first:
		l.note(fmt.Sprintf("read the unwind tables of process %d", pid))
	case changed:
		l.note(fmt.Sprintf("read the unwind tables of process %d again: it has mapped code", pid))
	}
}

// forget releases the tables of processes that have ended, and loads those for which there is
// room now.
func (l *tableLoader) forget() {
	for _, pid := range l.unwind.Forget() {
		l.jobs.add(job{jobLoad, pid})
	}
}

// fewLayouts is for how many different layouts tables are loaded before the probes are set,
// whichever processes have them.
const fewLayouts = 16

// urgent divides processes into those whose tables are needed before the probes are set, and those
// that can wait. Of many processes only those with a GPU open are urgent: workers of data loaders
// map CUDA's libraries and never call them.
func urgent(pids []uint32, layouts map[uint32]uint64) (now, later []uint32) {
	different := map[uint64]bool{}
	for _, pid := range pids {
		if layout := layouts[pid]; layout != 0 {
			different[layout] = true
		} else {
			different[uint64(pid)] = true
		}
	}
	if len(different) <= fewLayouts {
		return pids, nil
	}
	for _, pid := range pids {
		if len(gpuusage.OpenGPUs(pid)) > 0 {
			now = append(now, pid)
		} else {
			later = append(later, pid)
		}
	}
	if len(now) == 0 {
		return later, nil
	}
	return now, later
}

// layoutsIn lists the layouts that processes have in the kernel's list, also those that they have
// from their parents and of which no event came yet.
func layoutsIn(list *ebpf.Map) map[uint32]uint32 {
	layouts := map[uint32]uint32{}
	var pid uint32
	var entry bpf.Process
	for i := list.Iterate(); i.Next(&pid, &entry); {
		if entry.Layout != 0 {
			layouts[pid] = entry.Layout
		}
	}
	return layouts
}
