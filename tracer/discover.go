// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// loadPatience limits how long the probes of a new process wait for its unwind tables.
const loadPatience = 300 * time.Millisecond

var ownPid = uint32(os.Getpid())

// Stage is what Run waits for before it is ready.
type Stage int

// Stages, in the order in which they come.
const (
	FindsProcesses Stage = iota
	ReadsTables          // unwind tables of the processes' libraries
	AwaitsKernel         // which verifies programs
	SetsProbes
	ReadsUsage // of GPU memory, from NVML
)

// discovery finds the processes that map CUDA's libraries, and probes these. Any goroutine may call
// mapped, poll and wantDevice, which never wait; the others take long, and are for Run until the
// worker runs, and then for the worker.
type discovery struct {
	prober  *probes.Prober // the programs that probe functions
	files   *probes.Files
	learner probes.Learner
	unseen  probes.Unseen
	ahead   *libraries.Ahead
	scanner *libraries.Scanner
	mapping *libraries.MappingEvents
	stalled stalled

	sequencer *sequence.Sequencer
	defects   *panics.List
	table     *processes.Table
	usage     *gpuusage.Monitor
	tables    *tableLoader
	jobs      *jobs
	note      func(string)
	stage     func(Stage)

	beginOnce sync.Once     // the books begin when the first probe is set
	begin     atomic.Uint64 // when they did, in ns of CLOCK_MONOTONIC
	running   atomic.Uint64 // since when new processes are noticed; 0: not yet
}

// discover scans one process, or all with pid 0. It loads the unwind tables of the CUDA processes
// that are traced, and probes their libraries. The first time it loads the tables before it
// attaches probes, so that the first event of a running process has a whole stack. Later it waits
// for them only briefly: PyTorch's tables take seconds, and a missed call is worse than a missing
// stack.
//
// Run calls it before it starts the worker, and then only the worker does: scanning, loading and
// attaching may take seconds.
func (d *discovery) discover(pid uint32) error {
	defer d.stalled.warn()
	defer d.ahead.Close()
	d.stage(FindsProcesses)
	found, layouts, later, err := d.ahead.Scan(d.scanner, pid, d.table.Everyone(), d.wanted)
	if err != nil {
		return err
	}
	defer func() {
		for _, pid := range later {
			d.jobs.add(job{jobScan, pid})
		}
	}()
	var load []uint32
	looked := map[uint32]bool{ownPid: true}
	for _, library := range found {
		if !looked[library.PID] && d.found(library.PID) {
			load = append(load, library.PID)
		}
		looked[library.PID] = true
	}
	d.stage(ReadsTables)
	loaded := d.tables.begin(load, layouts)
	if d.running.Load() == 0 {
		<-loaded
	}
	select {
	case <-loaded:
	case <-time.After(loadPatience):
	}
	d.stage(AwaitsKernel)
	if err := d.prober.Wait(); err != nil {
		return err
	}
	d.beginOnce.Do(d.beginBooks)
	d.stage(SetsProbes)
	d.files.Probe(found)
	return nil
}

// mappedMeanwhile returns the mappings of processes that wait for their scan. The first probes of a
// file are set in these processes too.
func (d *discovery) mappedMeanwhile() (list []libraries.Mapped) {
	if d.running.Load() == 0 { // nobody reads the mapping events yet
		d.mapping.Poll(d.mapped)
	}
	for _, pid := range d.jobs.scans() {
		if found, _, err := d.scanner.ScanLayouts(pid); err == nil {
			list = append(list, found...)
		}
	}
	return list
}

// beginBooks has the session count from now on: the first probe is about to be set.
func (d *discovery) beginBooks() {
	tx := d.sequencer.Begin()
	defer tx.Done()
	d.begin.Store(clock.Now())
	tx.Tell(ledger.Begin{Time: d.begin.Load()})
}

// found notes that a process maps a CUDA library, and reports whether its unwind tables are still
// to be loaded.
func (d *discovery) found(pid uint32) (load bool) {
	tx := d.sequencer.Begin()
	defer tx.Done()
	return d.table.Found(tx, pid)
}

// wanted reports whether a process is traced, and decides it if need be.
func (d *discovery) wanted(pid uint32) bool {
	tx := d.sequencer.Begin()
	defer tx.Done()
	return d.table.Wants(tx, pid)
}

// probed is called after a file was probed.
func (d *discovery) probed(l libraries.Mapped, rows int) {
	d.note(fmt.Sprintf("probing %d functions of %s", rows, l.Name))
	d.noteLate(l)
	if !l.IsOwn() && l.Layer.IsCUDA() && !d.table.IsHeld(l.PID) {
		d.jobs.add(job{kind: jobLearn}) // its threads may have chosen their devices before
	}
}

// noteLate warns if a process that started during the session used a library before it was probed.
// Processes that started earlier miss all calls before the attach anyway.
func (d *discovery) noteLate(l libraries.Mapped) {
	began, noticed := procfs.StartTime(l.PID), d.running.Load()
	if l.IsOwn() || l.Program || l.Layer == cudaapi.NCCL || noticed == 0 || began < noticed {
		return
	}
	late := time.Duration(clock.Now() - began).Round(time.Millisecond)
	if text := d.unseen.Note(l, late); text != "" {
		d.sequencer.Warn(0, text)
	}
}

// wantDevice requests brief probes if an event shows that they are needed.
func (d *discovery) wantDevice(e *ledger.Event) {
	if d.learner.Want(e, e.Device == ledger.UnknownDevice && d.usage.OnOneGPU(e.PID)) {
		d.jobs.add(job{kind: jobLearn})
	}
}

// learn attaches the brief probes.
func (d *discovery) learn() error {
	return d.learner.Begin(d.usage.OneGPU(), d.files, d.scanner.Scan, func() { d.jobs.add(job{kind: jobLearned}) })
}

// retire detaches the probes from files that no process can map again.
func (d *discovery) retire() error {
	defer d.files.ForgetProcesses()
	found, err := d.scanner.Scan()
	if err == nil {
		d.files.Retire(found, d.stalled.pids())
	}
	return err
}

// mapped is told of each executable mapping made anywhere.
func (d *discovery) mapped(pid uint32, cuda bool) {
	if cuda {
		d.usage.Wake()
		d.jobs.add(job{kind: jobScan, pid: pid})
	}
	// A scan loads the tables of processes that are new to it. A load that is under way may have
	// passed this mapping.
	if d.table.UsesCUDA(pid) {
		d.jobs.add(job{kind: jobLoad, pid: pid})
	}
}

// prepareHeld prepares a process of the command that stopped because its dynamic loader has loaded
// libraries, and lets it go on.
func (d *discovery) prepareHeld(pid uint32) {
	defer unix.Kill(int(pid), unix.SIGCONT) // whatever happens
	if libraries.MayMap(pid) {
		if err := d.discover(pid); err != nil {
			d.sequencer.Warn(0, err.Error())
		}
		d.tables.load(pid, 0)
	}
}

// review attaches and detaches the probes of wrappers.
func (d *discovery) review() {
	defer d.defects.Recovered("a look at the probes of the runtime")
	d.files.Review()
	d.stalled.warn()
}

// poll has the processes looked at that have mapped libraries since the last call.
func (d *discovery) poll() {
	changed, err := d.mapping.Hotplug()
	if err != nil {
		d.sequencer.Warn(0, "processes that begin may be noticed late: "+err.Error())
	}
	if d.mapping.Poll(d.mapped) || changed {
		d.jobs.add(job{kind: jobScan})
	}
}
