// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/usage"
)

// forgetAfter is how long the tables of an ended process stay, for stacks that
// are still on their way.
const forgetAfter = 5 * time.Second

// work does jobs until ctx ends.
func (t *Tracer) work(ctx context.Context) {
	forget := time.NewTimer(time.Hour)
	defer forget.Stop()
	forgetting, again := false, false
	reap := time.NewTicker(time.Second)
	defer reap.Stop()
	for {
		select {
		case <-ctx.Done():
			t.loads.Wait()
			releaseAll(t.coll.Maps["processes"])
			return
		case <-forget.C:
			forgetting = again
			if again = false; forgetting {
				forget.Reset(forgetAfter)
			}
			t.forget()
		case <-reap.C:
			t.reap()
		case <-t.jobs.wake:
		}
		for ctx.Err() == nil {
			n, ok := t.jobs.take()
			if !ok {
				break
			}
			if n.kind == jobForget {
				if again = forgetting; !forgetting { // further ends do not put it off
					forget.Reset(forgetAfter)
				}
				forgetting = true
				continue
			}
			t.do(n)
		}
	}
}

// loadTablesOnDemand loads unwind tables until ctx ends: processes that have just begun do not wait for others' libraries to be probed.
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

func (t *Tracer) warn(text string) {
	t.desk.Take()
	defer t.turn.Done()
	t.turn.Tell(ledger.Warning{Text: text})
}

// warnOf is warn for a sentence about a process.
func (t *Tracer) warnOf(pid uint32, text string) {
	t.desk.Take()
	defer t.turn.Done()
	t.turn.Tell(ledger.Warning{PID: pid, Text: text})
}

// reap ends processes whose end was not reported: they were gone before the
// kernel knew of them, or the ring was full.
func (t *Tracer) reap() {
	t.desk.Take()
	defer t.turn.Done()
	defer t.defects.Recovered("a look at processes")
	for _, pid := range t.gone() {
		t.exited(&bpf.Event{Pid: pid, Tid: pid, Time: clock.Now()})
	}
}

// gone lists the processes that do not exist any more and whose events have all
// been read: the ring was read to its end after they were found missing. It counts
// twice, since the first time may have been over already. in a turn.
func (t *Tracer) gone() (pids []uint32) {
	for pid, p := range t.processes {
		switch missing := !procfs.Exists(pid); {
		case !missing:
			p.goneAt = 0
		case p.goneAt == 0:
			p.goneAt = t.emptied.Load() + 2
		case t.emptied.Load() >= p.goneAt:
			pids = append(pids, pid)
		}
	}
	return pids
}

// fewLayouts is for how many different layouts tables are loaded before the probes are set, whoever has them.
const fewLayouts = 16

// urgent divides processes into those whose tables are needed before the probes are set and those for which there is time. Where there are
// many, only those with a GPU open are the former: workers of data loaders map CUDA's libraries and never call them.
func (t *Tracer) urgent(pids []uint32, layouts map[uint32]uint64) (now, later []uint32) {
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
		if len(usage.OpenGPUs(pid)) > 0 {
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

var ownPid = uint32(os.Getpid())

// wanted says whether a process is traced, deciding it if need be.
func (t *Tracer) wanted(pid uint32) bool {
	t.desk.Take()
	defer t.turn.Done()
	p := t.mappedProcess(pid)
	return p != nil && p.traced
}

// mappedProcess finds or classifies a process that a scan has found; in a turn.
// It returns nil for one that has ended since, and whose books may be closed already.
func (t *Tracer) mappedProcess(pid uint32) *process {
	if p, ok := t.processes[pid]; ok && !p.reborn() {
		return p
	}
	if start := procfs.StartTicks(pid); start == 0 || start == t.tombs[pid] {
		return nil
	}
	return t.classify(pid)
}

// expect enters the processes that were asked for by pid, also those that do
// not use CUDA yet.
func (t *Tracer) expect() {
	t.desk.Take()
	defer t.turn.Done()
	for _, pid := range t.config.PIDs {
		if _, known := t.processes[pid]; !known && procfs.Exists(pid) {
			t.classify(pid)
		}
	}
}

// found notes that a process maps a CUDA library, and says whether it is traced
// and its unwind tables are still to be loaded.
func (t *Tracer) found(pid uint32) (load bool) {
	t.desk.Take()
	defer t.turn.Done()
	p := t.mappedProcess(pid)
	if p == nil {
		return false
	}
	p.cuda = true
	if !p.traced {
		return false
	}
	t.book(p)
	return !p.loaded
}

func (t *Tracer) isTraced(pid uint32) bool {
	t.desk.Take()
	defer t.turn.Done()
	p, ok := t.processes[pid]
	return ok && p.traced
}

func (t *Tracer) isHeld(pid uint32) bool {
	t.desk.Take()
	defer t.turn.Done()
	p, ok := t.processes[pid]
	return ok && p.held
}

// A process that maps code in a loop keeps nobody else waiting: its tables wait for their next load at most loadInterval, and at
// least, in the long run, loadShare times as long as the last one has taken. After the first loads they wait for less, from firstInterval
// on: a program's loader maps its libraries one after the other, and what it calls next needs the tables of all.
const (
	loadInterval  = 100 * time.Millisecond
	loadShare     = 10
	firstInterval = 2 * time.Millisecond
)

// pause is how long the tables of a process wait after a load.
func (p *process) pause(took time.Duration) time.Duration {
	p.loads = min(p.loads+1, 8)
	return min(firstInterval<<(p.loads-1), max(loadShare*took, firstInterval), loadInterval)
}

// loadSoon loads the tables of a process now, or when it may again.
func (t *Tracer) loadSoon(pid uint32) {
	t.desk.Take()
	p, ok := t.processes[pid]
	if !ok || !p.traced {
		t.turn.Done()
		return
	}
	wait := time.Until(p.nextLoad)
	t.turn.Done()
	if wait > 0 {
		time.AfterFunc(wait, func() { t.jobs.add(job{jobLoad, pid}) })
		return
	}
	t.loadTables(pid, 0)
}

// loadLater loads the tables of a process that has none yet.
func (t *Tracer) loadLater(pid uint32) {
	t.desk.Take()
	p, ok := t.processes[pid]
	wanted := ok && !p.loaded
	t.turn.Done()
	if wanted {
		t.loadTables(pid, 0)
	}
}

// loadTables brings the unwind tables of a traced process up to date. layout is what a scan has just found of it, 0 if
// it is not known: another process that has the same one has all that it needs.
func (t *Tracer) loadTables(pid uint32, layout uint64) {
	if !t.isTraced(pid) {
		return
	}
	began := time.Now()
	number, shared := t.unwind.Share(pid, layout)
	if !shared {
		number = t.unwind.Load(pid, layout)
	}
	jit := procfs.WritesPerfMap(pid)
	if t.tablesLoaded(pid, number, jit, time.Since(began)) && !shared {
		t.config.Note(fmt.Sprintf("read the unwind tables of process %d", pid))
	}
}

// tablesLoaded tells the kernel half, and returns true the first time.
func (t *Tracer) tablesLoaded(pid, layout uint32, jit bool, took time.Duration) (first bool) {
	t.desk.Take()
	defer t.turn.Done()
	p, ok := t.processes[pid]
	if !ok {
		return false
	}
	first = !p.loaded
	p.loaded, p.jit, p.layout = true, jit, layout
	p.nextLoad = time.Now().Add(p.pause(took))
	p.generation++ // walks that the kernel remembers may not hold any more
	t.tellKernel(p)
	return first
}

// forgetTables releases the tables of processes that have ended, and tells the kernel half of those for which there is room now.
func (t *Tracer) forgetTables() {
	for _, pid := range t.unwind.Forget() {
		t.jobs.add(job{jobLoad, pid})
	}
}

// layoutsInKernel lists which layouts processes have, also those whose parent's they are and of which nobody has heard.
func (t *Tracer) layoutsInKernel() map[uint32]uint32 {
	list := map[uint32]uint32{}
	var pid uint32
	var entry bpf.Process
	for i := t.coll.Maps["processes"].Iterate(); i.Next(&pid, &entry); {
		if entry.Layout != 0 {
			list[pid] = entry.Layout
		}
	}
	return list
}

// mapped is told of each executable mapping made anywhere.
func (t *Tracer) mapped(pid uint32, cuda bool) {
	if cuda {
		t.jobs.add(job{kind: jobScan, pid: pid})
		return
	}
	t.desk.Take()
	p, ok := t.processes[pid]
	load := ok && p.traced && p.cuda // also while its first load is under way, which may have passed this
	t.turn.Done()
	if load {
		t.jobs.add(job{kind: jobLoad, pid: pid})
	}
}

// lookAtHeld prepares a process of ours that stopped because its dynamic
// loader has loaded libraries, and lets it go on.
func (t *Tracer) lookAtHeld(pid uint32) {
	defer unix.Kill(int(pid), unix.SIGCONT) // whatever happens
	if libraries.MayMap(pid) {
		if err := t.discover(pid); err != nil {
			t.warn(err.Error())
		}
		t.loadTables(pid, 0)
	}
}
