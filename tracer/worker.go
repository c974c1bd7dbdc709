// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// forgetAfter is how long the tables of an ended process stay, for stacks that are on their way.
const forgetAfter = 5 * time.Second

// worker does the jobs that can take long, one at a time, in a goroutine of its own.
type worker struct {
	jobs          *jobs
	discovery     *discovery
	introductions *introductions
	tables        *tableLoader
	eviction      *eviction
	tensors       *torchalloc.Allocators
	events        *eventReader
	reaper        *processes.Reaper
	sequencer     *sequence.Sequencer
	defects       *panics.List
	processes     *ebpf.Map     // the kernel half's list
	stopped       parents       // of processes that were held
	pause         time.Duration // between reviews of the probes of wrappers
}

// run does the worker's jobs until ctx ends.
func (w *worker) run(ctx context.Context) {
	forget := time.NewTimer(time.Hour)
	defer forget.Stop()
	forgetting, again := false, false
	reap := time.NewTicker(time.Second)
	defer reap.Stop()
	review := time.NewTicker(w.pause)
	defer review.Stop()
	for {
		select {
		case <-ctx.Done():
			w.introductions.due()
			w.tables.loads.Wait()
			releaseAll(w.processes)
			return
		case <-forget.C:
			forgetting = again
			if again = false; forgetting {
				forget.Reset(forgetAfter)
			}
			w.timed(w.eviction.forget)
		case <-reap.C:
			w.timed(w.reap)
		case <-review.C:
			w.timed(w.discovery.review)
		case <-w.jobs.wake:
		}
		for ctx.Err() == nil {
			n, ok := w.jobs.take()
			if !ok {
				break
			}
			if n.kind == jobForget {
				if again = forgetting; !forgetting { // further ends do not put it off
					forget.Reset(forgetAfter)
				}
				forgetting = true
			} else {
				w.do(n)
			}
			w.jobs.end()
		}
	}
}

// timed does what a timer asks for, which has an age as jobs have.
func (w *worker) timed(do func()) {
	w.jobs.begin(time.Now())
	defer w.jobs.end()
	do()
}

// do does a job of the worker, of any kind but jobForget.
func (w *worker) do(n job) {
	defer w.defects.Recovered("a look at processes")
	switch n.kind {
	case jobHeld:
		w.stopped.watch(n.pid, time.Now(), func(pid uint32) bool { return isHeld(w.processes, pid) })
		w.discovery.prepareHeld(n.pid)
	case jobScan:
		if err := w.discovery.discover(n.pid); err != nil {
			w.sequencer.Warn(0, err.Error())
		}
	case jobIntroduce:
		w.introductions.introduce(n.pid)
	case jobLearn:
		if err := w.discovery.learn(); err != nil {
			w.sequencer.Warn(0, err.Error())
		}
	case jobLearned:
		w.discovery.learner.End()
	case jobPyTorch:
		w.events.scanner.BookSettings(n.pid)
	case jobBlocks:
		w.tensors.PlaceLeft()
	case jobEvict:
		w.eviction.evict()
	}
}

// reap ends processes whose end the kernel did not report, and continues those that have stopped
// because a child was held.
func (w *worker) reap() {
	w.stopped.release(time.Now())
	tx := w.sequencer.Begin()
	defer tx.Done()
	defer w.defects.Recovered("a look at processes")
	for _, pid := range w.reaper.Gone() {
		w.events.exit(tx, &bpf.Event{Pid: pid, Tid: pid, Time: clock.Now()})
	}
}
