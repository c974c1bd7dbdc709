// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// A thread that chose its device before the attach may not do so again. For
// learnFor, functions are probed that programs call often and that tell what is current; again
// when an allocation came without a device, after learnPause, then twice that, up to maxLearnPause.
const (
	learnFor      = time.Second
	learnPause    = 5 * time.Second
	maxLearnPause = 10 * time.Minute
)

// learner holds the brief probes while they are set; all but wantAt and pause is the worker's.
type learner struct {
	sets   []*probes
	wantAt uint64        // ns of CLOCK_MONOTONIC; not before then is it asked for again
	pause  time.Duration // after the next time
	active bool          // guarded by Tracer.mu like wantAt
}

// wantDevice asks for the brief probes when an allocation came without its
// device although there are several; t.mu is held.
func (t *Tracer) wantDevice(p *process, e *ledger.Event) {
	if e.Op != ledger.Alloc || e.Device != ledger.UnknownDevice || e.Kind.OnHost() || e.Space == ledger.Physical ||
		len(p.uuids) == 1 || p.gpus == 1 || t.learner.active || e.Time < t.learner.wantAt {
		return
	}
	t.learner.pause = min(max(2*t.learner.pause, learnPause), maxLearnPause)
	t.learner.wantAt = e.Time + uint64(learnFor+t.learner.pause)
	t.jobs.add(job{kind: jobLearn})
}

// learn sets the brief probes in all files that are probed.
func (t *Tracer) learn() error {
	t.mu.Lock()
	single := len(t.gpus) == 1
	t.learner.active = !single
	t.mu.Unlock()
	if single || len(t.learner.sets) > 0 {
		return nil
	}
	// Also after an error: what is set does not stay, and the next one may ask again.
	time.AfterFunc(learnFor, func() { t.jobs.add(job{kind: jobLearned}) })
	found, err := t.scanner.scan()
	if err != nil {
		return err
	}
	done := map[fileKey]bool{}
	for _, library := range found {
		if library.layer == Torch || t.files[library.file] == nil || done[library.file] {
			continue
		}
		f, err := library.openLibrary()
		if err != nil {
			continue // gone since
		}
		set, err := t.prober.attachBrief(f, library.layer)
		f.Close()
		if err != nil {
			return fmt.Errorf("learn the devices of threads from %s: %w", library.name, err)
		}
		done[library.file] = true
		t.learner.sets = append(t.learner.sets, set)
	}
	return nil
}

func (t *Tracer) endLearning() {
	for _, set := range t.learner.sets {
		set.close()
	}
	t.learner.sets = nil
	t.mu.Lock()
	t.learner.active = false
	t.mu.Unlock()
}

// forgetContexts removes the contexts and captured streams of processes that are gone from what the
// kernel half knows.
func (t *Tracer) forgetContexts() {
	t.forgetCaptures()
	contexts := t.coll.Maps["contexts"]
	var gone []bpf.ContextKey
	var key bpf.ContextKey
	var device uint32
	t.mu.Lock()
	for i := contexts.Iterate(); i.Next(&key, &device); {
		if t.processes[uint32(key.Pid)] == nil {
			gone = append(gone, key)
		}
	}
	t.mu.Unlock()
	for i := range gone {
		_ = contexts.Delete(&gone[i])
	}
}

func (t *Tracer) forgetCaptures() {
	captures := t.coll.Maps["captures"]
	var gone []bpf.StreamKey
	var key bpf.StreamKey
	var n uint64
	t.mu.Lock()
	for i := captures.Iterate(); i.Next(&key, &n); {
		if t.processes[uint32(key.Pid)] == nil {
			gone = append(gone, key)
		}
	}
	t.mu.Unlock()
	for i := range gone {
		_ = captures.Delete(&gone[i])
	}
}
