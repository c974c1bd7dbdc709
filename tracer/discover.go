// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// newFiles returns the files that are probed, and their wiring.
func (t *Tracer) newFiles() *probes.Files {
	return probes.NewFiles(t.prober, probes.Options{
		NoTensors: t.config.NoTensors,
		Traced:    t.isTraced,
		Owner:     t.ownerOf,
		Warn:      t.warnOf,
		Probed:    t.probed,
	})
}

// probed is told of a file that has just been probed.
func (t *Tracer) probed(l libraries.Mapped, rows int) {
	t.config.Note(fmt.Sprintf("probing %d functions of %s", rows, l.Name))
	t.noteLate(l)
	if !l.IsOwn() && l.Layer != functions.Torch && !t.isHeld(l.PID) {
		t.jobs.add(job{kind: jobLearn}) // its threads have chosen their devices already
	}
}

// noteLate warns of how long a process ran with a library that was not probed yet, if it began after
// the session: it had no other moment in which its calls could be missed.
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

// wantDevice asks for the brief probes when an event shows that they are needed; in a turn.
func (t *Tracer) wantDevice(p *process, e *ledger.Event) {
	if t.learner.Want(e, len(p.uuids) == 1 || p.gpus == 1) {
		t.jobs.add(job{kind: jobLearn})
	}
}

// learn sets the brief probes.
func (t *Tracer) learn() error {
	t.desk.Take()
	single := len(t.gpus) == 1
	t.turn.Done()
	return t.learner.Begin(single, t.files, t.scanner.Scan, func() { t.jobs.add(job{kind: jobLearned}) })
}

// retire takes away the probes that nobody can need any more.
func (t *Tracer) retire() error {
	defer t.files.ForgetProcesses()
	found, err := t.scanner.Scan()
	if err == nil {
		t.files.Retire(found)
	}
	return err
}

// isKnown reports whether there is a process with this pid.
func (t *Tracer) isKnown(pid uint32) bool {
	t.desk.Take()
	defer t.turn.Done()
	return t.processes[pid] != nil
}
