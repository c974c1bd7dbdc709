// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probes"
)

// A thread that chose its device before the attach may not do so again. For
// learnFor, functions are probed that programs call often and that tell what is current; again
// for as long as allocations come without a device: after learnPause, and up to maxLearnPause where nothing is told,
// but sooner for a thread that was not waited for yet.
const (
	learnFor      = time.Second
	learnPause    = 5 * time.Second
	maxLearnPause = 30 * time.Second
	newLearnPause = 2 * time.Second
	maxWaitedFor  = 1 << 12
)

// learner holds the brief probes while they are set; sets is the worker's, the rest is guarded by Tracer.mu.
type learner struct {
	sets   []*probes.Set
	wantAt uint64 // ns of CLOCK_MONOTONIC; not before then is it asked for again
	newAt  uint64 // likewise, for a thread that is not in waited
	pause  time.Duration
	waited map[uint32]bool // threads that had no device when, or just before, the probes were set
	active bool
}

// wantDevice asks for the brief probes when an allocation came without its
// device although there are several; in a turn.
func (t *Tracer) wantDevice(p *process, e *ledger.Event) {
	l := &t.learner
	if e.Op == ledger.Learn { // it is worth it
		delete(l.waited, e.TID)
		l.pause = 0
		l.wantAt = min(l.wantAt, e.Time+uint64(learnFor+learnPause))
		return
	}
	if e.Op != ledger.Alloc || e.Device != ledger.UnknownDevice || e.Kind.OnHost() || e.Space == ledger.Physical ||
		len(p.uuids) == 1 || p.gpus == 1 {
		return
	}
	at := l.newAt
	if l.waited[e.TID] {
		at = l.wantAt
	}
	if !l.active && e.Time < at {
		return
	}
	if l.waited == nil || len(l.waited) >= maxWaitedFor {
		l.waited = make(map[uint32]bool)
	}
	l.waited[e.TID] = true
	if l.active {
		return
	}
	l.active = true
	l.pause = min(max(2*l.pause, learnPause), maxLearnPause)
	l.wantAt = e.Time + uint64(learnFor+l.pause)
	l.newAt = e.Time + uint64(learnFor+newLearnPause)
	t.jobs.add(job{kind: jobLearn})
}

// learn sets the brief probes in all files that are probed.
func (t *Tracer) learn() error {
	t.desk.Take()
	single := len(t.gpus) == 1
	t.learner.active = !single
	t.turn.Done()
	if single || len(t.learner.sets) > 0 {
		return nil
	}
	// Also after an error: what is set does not stay, and the next one may ask again.
	time.AfterFunc(learnFor, func() { t.jobs.add(job{kind: jobLearned}) })
	found, err := t.scanner.Scan()
	if err != nil {
		return err
	}
	done := map[libraries.FileKey]bool{}
	for _, library := range found {
		if library.Layer == functions.Torch || t.files[library.File] == nil || done[library.File] {
			continue
		}
		f, err := library.OpenFile()
		if err != nil {
			continue // gone since
		}
		set, err := t.prober.AttachBrief(f, library.Layer)
		f.Close()
		if err != nil {
			return fmt.Errorf("learn the devices of threads from %s: %w", library.Name, err)
		}
		done[library.File] = true
		t.learner.sets = append(t.learner.sets, set)
	}
	return nil
}

func (t *Tracer) endLearning() {
	for _, set := range t.learner.sets {
		set.Close()
	}
	t.learner.sets = nil
	t.desk.Take()
	t.learner.active = false
	t.turn.Done()
}

// forgetContexts removes the contexts and captured streams of processes that are gone from what the
// kernel half knows.
func (t *Tracer) forgetContexts() {
	t.forgetCaptures()
	contexts := t.coll.Maps["contexts"]
	var gone []bpf.ContextKey
	var key bpf.ContextKey
	var device uint32
	t.desk.Take()
	for i := contexts.Iterate(); i.Next(&key, &device); {
		if t.processes[uint32(key.Pid)] == nil {
			gone = append(gone, key)
		}
	}
	t.turn.Done()
	for i := range gone {
		_ = contexts.Delete(&gone[i])
	}
}

func (t *Tracer) forgetCaptures() {
	captures := t.coll.Maps["captures"]
	var gone []bpf.StreamKey
	var key bpf.StreamKey
	var n uint64
	t.desk.Take()
	for i := captures.Iterate(); i.Next(&key, &n); {
		if t.processes[uint32(key.Pid)] == nil {
			gone = append(gone, key)
		}
	}
	t.turn.Done()
	for i := range gone {
		_ = captures.Delete(&gone[i])
	}
}
