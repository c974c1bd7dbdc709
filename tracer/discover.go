// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// discover scans one process, or all with pid 0. It loads the unwind tables of the CUDA processes
// that are traced, and probes their libraries. The first time it loads the tables before it
// attaches probes, so that the first event of a running process has a whole stack. Later it waits
// for them only briefly: PyTorch's tables take seconds, and a missed call is worse than a missing
// stack.
//
// Run calls it before it starts the worker, and then only the worker does: scanning, loading and
// attaching may take seconds.
func (t *Tracer) discover(pid uint32) error {
	defer t.warnOfStalled()
	defer t.ahead.Close()
	found, layouts, later, err := t.ahead.Scan(t.scanner, pid, t.table.Everyone(), t.wanted)
	if err != nil {
		return err
	}
	defer func() {
		for _, pid := range later {
			t.jobs.add(job{jobScan, pid})
		}
	}()
	var load []uint32
	looked := map[uint32]bool{ownPid: true}
	for _, library := range found {
		if !looked[library.PID] && t.found(library.PID) {
			load = append(load, library.PID)
		}
		looked[library.PID] = true
	}
	load, rest := urgent(load, layouts)
	loaded := make(chan struct{})
	t.loads.Go(func() {
		defer close(loaded)
		defer t.defects.Recovered("the unwind tables of a process")
		for _, pid := range load {
			t.loadTables(pid, layouts[pid])
		}
		for _, pid := range rest {
			t.jobs.add(job{jobLoadLater, pid})
		}
	})
	if t.running.Load() == 0 {
		<-loaded
	}
	select {
	case <-loaded:
	case <-time.After(loadPatience):
	}
	if err := t.prober.Wait(); err != nil {
		return err
	}
	t.beginOnce.Do(t.beginBooks)
	t.files.Probe(found)
	return nil
}

// mappedMeanwhile returns the mappings of processes that wait for their scan. The first probes of a
// file are set in these processes too.
func (t *Tracer) mappedMeanwhile() (list []libraries.Mapped) {
	if t.running.Load() == 0 { // nobody reads the mapping events yet
		t.mapping.Poll(t.mapped)
	}
	for _, pid := range t.jobs.scans() {
		if found, _, err := t.scanner.ScanLayouts(pid); err == nil {
			list = append(list, found...)
		}
	}
	return list
}

// loadPatience limits how long the probes of a new process wait for its unwind tables.
const loadPatience = 300 * time.Millisecond

// beginBooks has the session count from now on: the first probe is about to be set.
func (t *Tracer) beginBooks() {
	tx := t.sequencer.Begin()
	defer tx.Done()
	t.begin.Store(clock.Now())
	tx.Tell(ledger.Begin{Time: t.begin.Load()})
}

// found notes that a process maps a CUDA library, and reports whether its unwind tables are still
// to be loaded.
func (t *Tracer) found(pid uint32) (load bool) {
	tx := t.sequencer.Begin()
	defer tx.Done()
	return t.table.Found(tx, pid)
}

// wanted reports whether a process is traced, and decides it if need be.
func (t *Tracer) wanted(pid uint32) bool {
	tx := t.sequencer.Begin()
	defer tx.Done()
	return t.table.Wants(tx, pid)
}

// newFiles returns the probed files, connected to the tracer.
func (t *Tracer) newFiles() *probes.Files {
	return probes.NewFiles(t.prober, probes.Options{
		NoTensors: t.config.NoTensors,
		Requests:  t.config.DriverObjects,
		Prepare:   t.tensors.Prepare,
		Traced:    t.table.IsTraced,
		Owner:     t.table.UserOf,
		Warn:      t.warnOf,
		FileID:    func(l libraries.Mapped) (uint64, bool) { return t.unwind.FileAt(l.PID, l.Address) },
		Pace:      t.config.pace,
		Probed:    t.probed,
		Meanwhile: t.mappedMeanwhile,
		Again:     t.scanAgain,
		TakenBack: t.learner.End,
	})
}

// probed is called after a file was probed.
func (t *Tracer) probed(l libraries.Mapped, rows int) {
	t.config.Note(fmt.Sprintf("probing %d functions of %s", rows, l.Name))
	t.noteLate(l)
	if !l.IsOwn() && l.Layer != cudaapi.Torch && !t.table.IsHeld(l.PID) {
		t.jobs.add(job{kind: jobLearn}) // its threads may have chosen their devices before
	}
}

// noteLate warns if a process that started during the session used a library before it was probed.
// Processes that started earlier miss all calls before the attach anyway.
func (t *Tracer) noteLate(l libraries.Mapped) {
	began, noticed := procfs.StartTime(l.PID), t.running.Load()
	if l.IsOwn() || l.Program || noticed == 0 || began < noticed {
		return
	}
	late := time.Duration(clock.Now() - began).Round(time.Millisecond)
	if text := t.unseen.Note(l, late); text != "" {
		t.warn(text)
	}
}

// wantDevice requests brief probes if an event shows that they are needed.
func (t *Tracer) wantDevice(e *ledger.Event) {
	if t.learner.Want(e, e.Device == ledger.UnknownDevice && t.usage.OnOneGPU(e.PID)) {
		t.jobs.add(job{kind: jobLearn})
	}
}

// learn attaches the brief probes.
func (t *Tracer) learn() error {
	return t.learner.Begin(t.usage.OneGPU(), t.files, t.scanner.Scan, func() { t.jobs.add(job{kind: jobLearned}) })
}

// retire detaches the probes from files that no process can map again.
func (t *Tracer) retire() error {
	defer t.files.ForgetProcesses()
	found, err := t.scanner.Scan()
	if err == nil {
		t.files.Retire(found, t.stalled.pids())
	}
	return err
}
