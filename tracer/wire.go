// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probes"
)

// newFiles returns the probed files, connected to the tracer.
func (t *Tracer) newFiles() *probes.Files {
	return probes.NewFiles(t.prober, probes.Options{
		NoTensors: t.config.NoTensors,
		Requests:  t.config.DriverObjects,
		Prepare:   t.tensors.Prepare,
		Traced:    t.table.IsTraced,
		Owner:     t.table.UserOf,
		Warn:      t.sequencer.Warn,
		FileID:    func(l libraries.Mapped) (uint64, bool) { return t.unwind.FileAt(l.PID, l.Address) },
		Pace:      t.config.pace,
		Probed:    t.discovery.probed,
		Meanwhile: t.discovery.mappedMeanwhile,
		Again:     t.discovery.stalled.scanAgain,
		TakenBack: t.discovery.learner.End,
	})
}

// wire connects the parts with each other.
func (t *Tracer) wire() {
	d := &t.discovery
	d.sequencer, d.defects, d.table, d.usage, d.tables, d.jobs, d.note, d.stage = t.sequencer, &t.defects, t.table, t.usage, &t.tables, t.jobs, t.config.Note, t.config.Stage
	d.stalled.jobs, d.stalled.sequencer = t.jobs, t.sequencer
	l := &t.tables
	l.unwind, l.sequencer, l.defects, l.table, l.stacks, l.jobs, l.note = t.unwind, t.sequencer, &t.defects, t.table, t.stacks, t.jobs, t.config.Note
	i := &t.introductions
	i.sequencer, i.defects, i.table, i.usage, i.jobs = t.sequencer, &t.defects, t.table, t.usage, t.jobs
	r := &t.events
	r.sleeps, r.sequencer, r.defects, r.table, r.reaper = t.coll.Maps["reader_sleeps"], t.sequencer, &t.defects, t.table, t.reaper
	r.tensors, r.usage, r.shares, r.stacks, r.ooms = t.tensors, t.usage, t.shares, t.stacks, t.ooms
	r.discovery, r.jobs, r.losses, r.finished = d, t.jobs, &t.losses, t.finished
	if t.config.Details {
		r.scanner = t.snapshots.scanner
	}
	t.losses.coll, t.losses.stacks, t.losses.reader, t.losses.shares = t.coll, t.stacks, &t.reader, t.shares
	t.losses.meter = &t.meter
	b := &t.snapshots
	b.sequencer, b.defects, b.names, b.usage, b.tensors, b.shares = t.sequencer, &t.defects, t.names, t.usage, t.tensors, t.shares
	b.stacks, b.reader, b.unwind, b.events, b.discovery, b.losses, b.wantTensors = t.stacks, &t.reader, t.unwind, r, d, &t.losses, t.config.WantTensors
	e := &t.eviction
	e.coll, e.sequencer, e.defects, e.table, e.tensors, e.shares, e.ooms = t.coll, t.sequencer, &t.defects, t.table, t.tensors, t.shares, t.ooms
	e.stacks, e.unwind, e.events, e.discovery, e.tables, e.losses = t.stacks, t.unwind, r, d, l, &t.losses
}

// newWorker returns the worker of Run.
func (t *Tracer) newWorker() *worker {
	return &worker{
		jobs: t.jobs, discovery: &t.discovery, introductions: &t.introductions, tables: &t.tables, eviction: &t.eviction, tensors: t.tensors,
		events: &t.events, reaper: t.reaper, sequencer: t.sequencer, defects: &t.defects, processes: t.coll.Maps["processes"], stopped: parents{}, pause: t.config.pace.Review,
	}
}
