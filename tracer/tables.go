// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// loadTablesOnDemand loads unwind tables until ctx ends, in a goroutine of its own: processes that
// have just begun do not wait until the libraries of others are probed.
func (t *Tracer) loadTablesOnDemand(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.jobs.load:
		}
		for ctx.Err() == nil {
			n, ok := t.jobs.takeLoad()
			if !ok {
				break
			}
			t.do(n)
		}
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

// loadSoon loads the tables of a process now, or when it may again.
func (t *Tracer) loadSoon(pid uint32) {
	switch wait, traced := t.table.NextLoad(pid); {
	case !traced:
	case wait > 0:
		time.AfterFunc(wait, func() { t.jobs.add(job{jobLoad, pid}) })
	default:
		t.loadTables(pid, 0)
	}
}

// loadLater loads the tables of a process that has none yet.
func (t *Tracer) loadLater(pid uint32) {
	if t.table.IsUnloaded(pid) {
		t.loadTables(pid, 0)
	}
}

// loadTables brings the unwind tables of a traced process up to date. layout is what a scan has
// just found of it, 0 if it is not known: a process with the layout of another one needs no tables
// of its own.
func (t *Tracer) loadTables(pid uint32, layout uint64) {
	if !t.table.IsTraced(pid) {
		return
	}
	began := time.Now()
	number, shared := t.unwind.Share(pid, layout)
	if !shared {
		number = t.unwind.Load(pid, layout)
	}
	jit := procfs.WritesPerfMap(pid)
	tx := t.sequencer.Begin()
	first, changed := t.table.TablesLoaded(tx, pid, number, jit, time.Since(began))
	tx.Done()
	t.stacks.Place(pid)
	switch {
	case shared:
	case first:
		t.config.Note(fmt.Sprintf("read the unwind tables of process %d", pid))
	case changed:
		t.config.Note(fmt.Sprintf("read the unwind tables of process %d again: it has mapped code", pid))
	}
}

// forgetTables releases the tables of processes that have ended, and loads those for which there is
// room now.
func (t *Tracer) forgetTables() {
	for _, pid := range t.unwind.Forget() {
		t.jobs.add(job{jobLoad, pid})
	}
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
